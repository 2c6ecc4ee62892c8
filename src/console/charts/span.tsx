import type { Device, Stream } from '../api/interface.js';
import { browserZone, fromLocalInput, isEpochSeconds, isKnownZone, toLocalInput } from '../lib/format.js';
import { spanOptions, spans } from '../lib/spans.js';
import { type Search, useAddress } from '../ui/address.js';
import { Button } from '../ui/button.js';
import { Select } from '../ui/choice.js';

const day_s = 86_400;
/** The times that charts show: up to now, or up to a fixed end. */
export interface Span {
  length_s: number;
  at_to?: number;
}

const isCustom = ({ from, to }: Search) => from !== undefined || to !== undefined;

/** Returns the span that the address names; without one, the shortest that holds the last streams. */
export function spanOf({ span = '', from, to }: Search, streams: readonly Stream[]): Span {
  const now_s = Math.ceil(Date.now() / 1000);
  const [begin, end] = [from, to].map(readTime);
  if (begin !== undefined || end !== undefined) {
    const at_to = end ?? now_s;
    return { length_s: at_to - (begin ?? at_to - day_s), at_to };
  }
  const chosen = Object.hasOwn(spans, span) ? spans[span] : undefined;
  if (chosen !== undefined) return { length_s: chosen.length_s };
  const times = streams.map(({ at, created_at }) => at ?? created_at);
  const [oldest, newest] = [Math.min(now_s, ...times), Math.max(0, ...times)];
  const holding = Object.values(spans).find(({ length_s }) => length_s >= now_s - oldest);
  return holding === undefined
    ? { length_s: Math.max(60, newest - oldest + 1), at_to: newest + 1 }
    : { length_s: holding.length_s };
}

function readTime(text: string | undefined): number | undefined {
  return text !== undefined && isEpochSeconds(Number(text)) ? Number(text) : undefined;
}

/** All times of a chart are in one zone: that of the browser, or of the device where the address says so. */
export function zoneOf({ zone }: Search, { time_zone }: Device): string {
  return zone === 'device' && isKnownZone(time_zone) ? time_zone : browserZone;
}

function ZoneChoice({ device }: { device: Device }) {
  const [search, setSearch] = useAddress();
  const zone = zoneOf(search, device);
  if (device.time_zone === browserZone || !isKnownZone(device.time_zone)) return <span className="muted">{zone}</span>;
  return (
    <Select
      aria-label="Time zone"
      value={zone}
      options={[
        [browserZone, browserZone],
        [device.time_zone, `${device.time_zone} (device)`],
      ]}
      onChange={(chosen) => setSearch({ zone: chosen === browserZone ? undefined : 'device' }, { replace: true })}
    />
  );
}

/** Chooses the times of charts, and their zone. */
export function SpanChoice({ device }: { device: Device }) {
  const [search, setSearch] = useAddress();
  const zone = zoneOf(search, device);
  function choose(span: string): void {
    const now_s = Math.floor(Date.now() / 1000);
    if (span === 'custom') setSearch({ from: String(now_s - day_s), to: String(now_s) });
    else setSearch({ span: span === '' ? undefined : span, from: undefined, to: undefined });
  }
  return (
    <>
      <Select
        aria-label="Time span"
        value={isCustom(search) ? 'custom' : Object.hasOwn(spans, search.span ?? '') ? search.span : ''}
        options={spanOptions}
        empty="Latest data"
        onChange={choose}
      />
      {isCustom(search) && (
        <>
          {(['from', 'to'] as const).map((name) => (
            <input
              key={name}
              type="datetime-local"
              step={1}
              aria-label={{ from: 'From', to: 'To' }[name]}
              value={search[name] === undefined ? '' : toLocalInput(Number(search[name]), zone)}
              onChange={({ target }) =>
                setSearch({ [name]: fromLocalInput(target.value, zone)?.toString() }, { replace: true })
              }
            />
          ))}
          <Button label="Zoom out" onClick={() => choose(search.span ?? '')} />
        </>
      )}
      <ZoneChoice device={device} />
    </>
  );
}
