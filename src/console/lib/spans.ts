const day_s = 86_400;

/** Spans of time up to now that people choose from. */
export const spans: Readonly<Record<string, { label: string; length_s: number }>> = {
  '10m': { label: 'Last 10 minutes', length_s: 600 },
  '1h': { label: 'Last hour', length_s: 3600 },
  '6h': { label: 'Last 6 hours', length_s: 6 * 3600 },
  '24h': { label: 'Last 24 hours', length_s: day_s },
  '7d': { label: 'Last 7 days', length_s: 7 * day_s },
  '30d': { label: 'Last 30 days', length_s: 30 * day_s },
  '90d': { label: 'Last 90 days', length_s: 90 * day_s },
  '1y': { label: 'Last year', length_s: 365 * day_s },
};

/** The spans as options, and any other one. */
export const spanOptions = [
  ...Object.entries(spans).map(([span, { label }]) => [span, label] as const),
  ['custom', 'From … to …'] as const,
];
