// Written by scripts/console-types.ts from /openapi.json.

/** A alarm, as answers show it. */
export interface Alarm {
  state: 'active' | 'acknowledged' | 'closed';
  note?: string;
  id: string;
  rule: string;
  device: string;
  severity: 'info' | 'warning' | 'critical';
  values: Record<string, unknown>;
  at?: number;
  raised_at: number;
  acknowledged_at?: number;
  acknowledged_by?: string;
  closed_at?: number;
  closed_by?: string;
  id_project: string;
  id_service: string;
  id_group?: string;
  id_asset?: string;
}

/** A device, as answers show it. */
export interface Device {
  type: string;
  name: string;
  id_group?: string;
  id_asset?: string;
  id_model?: string;
  description?: string;
  properties?: Record<string, unknown>;
  sensor?: string;
  firmware?: string;
  checksum?: string;
  time_zone: string;
  frequency_status: number;
  frequency_stream: number;
  stream_retention_days?: number;
  summary_retention_days?: number;
  lon?: number;
  lat?: number;
  enabled: boolean;
  networking?: Record<string, unknown>;
  id_developer: string;
  status: 'ok' | 'no_data' | 'no_status' | 'disconnected';
  last_stream_at?: number;
  last_status_at?: number;
  stream_due_at?: number;
  status_due_at?: number;
  owner: string;
  updater: string;
  created_at: number;
  updated_at: number;
  version: number;
  latest?: Record<string, unknown>;
  alarms?: Record<string, unknown>;
}

/** A stream, as answers show it. */
export interface Stream {
  _t: 'str' | 'sta';
  protocol: string;
  at?: number;
  data: Record<string, unknown>;
  id_developer: string;
  device: string;
  owner: string;
  updater: string;
  created_at: number;
}

/** A file, as answers show it. */
export interface StorageFile {
  name: string;
  path: string;
  size: number;
  modified_at: number;
  url: string;
}

/** The length of the buckets, and the span as asked for. */
export interface SeriesMetadata {
  every: unknown;
  at_from: number;
  at_to: number;
}

/** The key of the request. */
export interface Self {
  account: string;
  username: string;
  scope: 'stream' | 'device' | 'read' | 'write' | 'admin';
  id_project?: string;
  id_service?: string;
  id_group?: string;
  id_asset?: string;
  id_device?: string;
  expires_at?: number;
  id?: string;
}

/** The outcome of a change. */
export interface StatusAnswer {
  code: number;
  message: string;
  details: Record<string, unknown>;
}

/** An event as webhooks of format `text` send it. */
export interface EventText {
  subject: string;
  text: string;
}
