import { type Freshness, useList, useModels, useSession } from '../api/hooks.js';
import type { Entry, StoredObject } from '../api/resources.js';
import { fieldOf, findMeasuredPaths, lastValueOf } from '../charts/measured-paths.js';
import { Loaded, Panel } from '../ui/page.js';
import { columnsOf, Table } from '../ui/table.js';
import { Reference, Time } from '../ui/value.js';

const max_rows = 10;
const max_measures = 3;
const fields = 'id_developer,name,status,last_status_at,id_group,id_asset,stream_due_at';

/** The devices whose data are late for longest, of those that have sent any. */
export function LateDevices({ fresh }: { fresh: Freshness }) {
  const models = useModels({ enabled: true });
  const measured = findMeasuredPaths(models.data?.result ?? []).slice(0, max_measures);
  const query = {
    _t: 'str',
    sort: 'stream_due_at',
    max: max_rows,
    fields: [fields, ...(measured.length > 0 ? ['id_model'] : []), ...measured.map(fieldOf)].join(','),
  };
  const isReady = fresh.enabled !== false && !models.isPending;
  const answer = useList<StoredObject>('/devices/', query, { ...fresh, enabled: isReady });
  const schema = useSession().entryOf('/devices/');
  const isLate = ({ stream_due_at }: Entry) => Number(stream_due_at) <= Date.now() / 1000;
  const lastValue = (device: Entry) =>
    measured.map((path) => lastValueOf(device, path)).find((value) => value !== undefined) ?? '–';
  const render = {
    place: ({ id_asset, id_group }: Entry) => (
      <Reference plural={id_asset === undefined ? 'groups' : 'assets'} id={String(id_asset ?? id_group)} />
    ),
    late_since: ({ stream_due_at }: Entry) => <Time seconds={Number(stream_due_at)} />,
    last_value: lastValue,
  };
  const shown = ['name', 'status', 'place', 'late_since', ...(measured.length > 0 ? ['last_value'] : [])];
  return (
    <Panel title="Needs attention">
      <Loaded of={answer} height="20rem">
        {({ result }) =>
          result.some(isLate) ? (
            <Table
              caption="Late devices"
              entries={result.filter(isLate)}
              columns={columnsOf<StoredObject>(schema, shown, { linked: 'devices', render })}
            />
          ) : (
            <p className="muted">No device that has sent data is late.</p>
          )
        }
      </Loaded>
    </Panel>
  );
}
