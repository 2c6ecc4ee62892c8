import { Link } from '@tanstack/react-router';
import { type Freshness, useCount } from '../api/queries.js';
import { severities } from '../api/resources.js';
import { useSession } from '../api/session.js';
import { Loading } from '../ui/feedback.js';
import { Panel } from '../ui/page.js';
import { AlarmTable, useOldest, useOpenCounts } from './open-alarms.js';

const max_worst = 10;
const rules_path = '/alarmrules/';

/** Reports whether the account has alarm rules; undefined until that is known. */
export function useHasRules(fresh: Freshness): boolean | undefined {
  const isOffered = useSession().can('GET', rules_path);
  const count = useCount(rules_path, {}, { ...fresh, enabled: isOffered && fresh.enabled !== false });
  if (!isOffered) return false;
  return count === undefined ? undefined : count > 0;
}

/** The worst and oldest open alarms, as part of the overview; only severities that have room are read. */
export function WorstAlarms({ fresh }: { fresh: Freshness }) {
  const counts = useOpenCounts();
  const [critical = 0, warning = 0, info = 0] = severities.map((severity) => counts?.of(severity));
  const isShown = [critical > 0, warning > 0 && critical < max_worst, info > 0 && critical + warning < max_worst];
  const optionsOf = (index: number) => ({
    max: max_worst,
    fresh: { ...fresh, enabled: isShown[index] === true && fresh.enabled !== false },
  });
  const answers = [
    useOldest('critical', optionsOf(0)),
    useOldest('warning', optionsOf(1)),
    useOldest('info', optionsOf(2)),
  ];
  const alarms = answers.flatMap(({ data }, index) => (isShown[index] ? (data?.result ?? []) : []));
  return (
    <Panel title="Open alarms" actions={<Link to="/alarms">All open alarms</Link>}>
      {counts === undefined ? <Loading height="20rem" /> : <AlarmTable alarms={alarms.slice(0, max_worst)} isPreview />}
    </Panel>
  );
}
