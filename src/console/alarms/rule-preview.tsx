import { useMutation } from '@tanstack/react-query';
import { type Query, request } from '../api/client.js';
import { countOf, deviceType, type Entry, type ListAnswer, queryOfScope } from '../api/resources.js';
import { type Condition, combine, isComplete, type Judged, judge } from '../lib/conditions.js';
import { formatNumber } from '../lib/format.js';
import { ObjectLink } from '../ui/address.js';
import { Button } from '../ui/button.js';
import { Failure } from '../ui/page.js';
import { RuleHistory } from './rule-history.js';

const max_judged = 1000;
const max_named = 20;

type Device = Judged & { id_developer: string; name: string; id_model?: string };

interface Preview {
  /** The rule that was tried, as JSON. */
  rule: string;
  total: number;
  judged: number;
  alarmed: readonly Device[];
  unclear: number;
  /** One that has sent the paths. */
  example: Device | undefined;
}

/** Tries a rule on the last streams of the devices that it covers. @throws RequestError */
async function tryRule(rule: Entry): Promise<Preview> {
  const conditions = (rule.conditions ?? []) as Condition[];
  const paths = conditions.flatMap(({ path, absent }) => (path ?? absent ?? []) as string);
  // a list of fields cannot hold a path with a comma
  const latest = paths.map((path) => (path.includes(',') ? 'latest' : `latest.${path}`));
  const fields = ['id_developer', 'name', 'id_model', 'status', 'created_at', 'last_stream_at', ...new Set(latest)];
  const query: Query = { ...queryOfScope(rule), enabled: 'true', max: max_judged, fields: fields.join(',') };
  const { total_documents: total, result } = await request<ListAnswer<Device>>('GET', '/devices/', { query });
  const now_s = Date.now() / 1000;
  const judgeAll = (device: Device) => conditions.map((condition) => judge(condition, device, now_s));
  const results = result.map((device) => combine(judgeAll(device), rule.match));
  const alarmed = result.filter((_device, index) => results[index]);
  return {
    rule: JSON.stringify(rule),
    total,
    judged: result.length,
    alarmed,
    example: alarmed[0] ?? result.find((device, index) => results[index] === false && device.latest !== undefined),
    unclear: results.filter((holds) => holds === undefined).length,
  };
}

/** Shows which devices a rule would find in alarm now, before it is saved. */
export function RulePreview({ rule }: { rule: Entry }) {
  const preview = useMutation({ mutationFn: () => tryRule(rule) });
  const isCurrent = preview.data?.rule === JSON.stringify(rule);
  const conditions = Array.isArray(rule.conditions) ? (rule.conditions as Condition[]) : [];
  const isReady = conditions.length > 0 && conditions.every(isComplete);
  return (
    <fieldset>
      <legend>Preview</legend>
      <div className="row">
        <Button label="Which devices now?" disabled={!isReady || preview.isPending} onClick={() => preview.mutate()} />
        {!isReady && <p className="help">Complete the conditions first.</p>}
      </div>
      <Failure error={preview.error} />
      <div role="status">{isCurrent && preview.data && <Outcome preview={preview.data} />}</div>
      {isCurrent && preview.data?.example && <RuleHistory rule={rule} device={preview.data.example} />}
      <p className="help">
        The conditions are compared with the status and the last stream of each device, as if they had held long enough.
      </p>
    </fieldset>
  );
}

function Outcome({ preview: { total, judged, alarmed, unclear } }: { preview: Preview }) {
  return (
    <>
      <p>
        <strong>
          {formatNumber(alarmed.length)} of {countOf(deviceType, judged)}
        </strong>{' '}
        would be in alarm now.
        {judged < total && ` The other ${formatNumber(total - judged)} that it covers were not looked at.`}
        {unclear > 0 && ` ${countOf(deviceType, unclear)} cannot be told: the last stream has not all of the paths.`}
      </p>
      <ul className="row">
        {alarmed.slice(0, max_named).map(({ id_developer: id, name }) => (
          <li key={id}>
            <ObjectLink plural="devices" id={id} label={name} />
          </li>
        ))}
        {alarmed.length > max_named && <li>and {formatNumber(alarmed.length - max_named)} more</li>}
      </ul>
    </>
  );
}
