import { ObjectTable } from '../lists/object-table.js';
import { Page } from '../ui/page.js';
import { Tabs } from '../ui/tabs.js';
import { useAnswers } from './answer-dialog.js';
import { NoticeChoice } from './notices.js';
import { OpenAlarms } from './open-alarms.js';
import { renderAlarm } from './worst-alarms.js';

/** The alarms of the account: those that are open, and all of them. */
export function Alarms() {
  return (
    <Page title="Alarms" actions={<NoticeChoice />}>
      <Tabs
        tabs={[
          { id: 'open', label: 'Open', render: () => <OpenAlarms /> },
          { id: 'all', label: 'All', render: () => <AllAlarms template="/alarms/" columns={['device']} /> },
        ]}
      />
    </Page>
  );
}

interface AllAlarmsProps {
  template: string;
  path?: string;
  /** Shown between the severity and the rule. */
  columns?: readonly string[];
}

/** Alarms of the account or of a device, with those that are closed. */
export function AllAlarms({ template, path = template, columns = [] }: AllAlarmsProps) {
  const { rowAction, dialog } = useAnswers();
  return (
    <>
      <ObjectTable
        caption="Alarms"
        template={template}
        path={path}
        columns={['severity', ...columns, 'rule', 'values', 'state', 'raised_at', 'closed_at', 'closed_by', 'note']}
        render={renderAlarm}
        rowAction={rowAction}
        sorting={{ sort: 'raised_at', order: '-1' }}
        empty="No alarm was raised yet."
      />
      {dialog}
    </>
  );
}
