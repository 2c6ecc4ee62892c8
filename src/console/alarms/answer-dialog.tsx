import { useCallback, useState } from 'react';
import { pathOf, request } from '../api/client.js';
import { useApiMutation, useSession } from '../api/hooks.js';
import type { Alarm } from '../api/interface.js';
import { countOf, type Entry } from '../api/resources.js';
import { findChanges } from '../edit/changes.js';
import { runEach } from '../edit/run-each.js';
import { SchemaForm, type Values } from '../forms/form.js';
import { labelOf } from '../lib/format.js';
import { Button } from '../ui/button.js';
import { Dialog } from '../ui/dialog.js';
import { keyOf } from './worst-alarms.js';

const alarm_path = '/alarms/{alarm_id}/';

/** Answers of people to alarms. */
type AnswerKind = 'acknowledged' | 'closed';
const answerLabels = { acknowledged: 'Acknowledge', closed: 'Close' } as const;

/** Lets people acknowledge and close alarms. The dialog is outside of the rows, which may disappear while it is open. */
export function useAnswers() {
  const { can } = useSession();
  const [asked, setAsked] = useState<Omit<AnswerDialogProps, 'onClose'>>();
  const buttonsFor = useCallback((alarms: readonly Alarm[], of?: string) => {
    const show = (kind: AnswerKind) => (
      <Button key={kind} label={`${answerLabels[kind]}…`} of={of} onClick={() => setAsked({ alarms, kind })} />
    );
    return kindsFor(alarms).map(show);
  }, []);
  const rowAction = useCallback(
    (entry: Entry | Alarm) => <span className="row">{buttonsFor([entry as Alarm], keyOf(entry as Alarm))}</span>,
    [buttonsFor],
  );
  return {
    /** The buttons for one alarm; undefined: the key may not change alarms. */
    rowAction: can('PUT', alarm_path) ? rowAction : undefined,
    buttonsFor,
    /** The dialog that a button has opened. */
    dialog: asked && <AnswerDialog {...asked} onClose={() => setAsked(undefined)} />,
  };
}

/** The answers that are left to give to some of these alarms. */
function kindsFor(alarms: readonly Alarm[]): AnswerKind[] {
  if (alarms.some(({ state }) => state === 'active')) return ['acknowledged', 'closed'];
  return alarms.some(({ state }) => state === 'acknowledged') ? ['closed'] : [];
}

interface AnswerDialogProps {
  alarms: readonly Alarm[];
  kind: AnswerKind;
  onClose(): void;
}

const noun = { noun: 'alarm' };

/** Acknowledges or closes alarms, with a note. */
function AnswerDialog({ alarms, kind, onClose }: AnswerDialogProps) {
  const schema = useSession().bodyOf('PUT', alarm_path);
  const count = countOf(noun, alarms.length);
  const title = `${answerLabels[kind]} ${count}`;
  const [alarm, ...others] = alarms;
  const isSingle = alarm !== undefined && others.length === 0;
  const initial = isSingle ? { note: alarm.note } : {};
  const answer = useApiMutation({
    run: (values: Values) => putEach(alarms, { state: kind, ...findChanges(initial, values, ['note']) }),
    message: () => `${labelOf(kind)} ${count}.`,
    onDone: onClose,
  });
  return (
    <Dialog title={title} onClose={onClose}>
      {isSingle && (
        <p>
          {alarm.rule}: {alarm.device}
        </p>
      )}
      <SchemaForm
        schema={schema}
        fields={['note']}
        initial={initial}
        submitLabel={title}
        mutation={answer}
        onCancel={onClose}
      />
    </Dialog>
  );
}

/** @throws RequestError of a single alarm; of several an Error that names the first that could not be changed */
async function putEach(alarms: readonly Alarm[], body: Values): Promise<void> {
  const put = async ({ id }: Alarm) => {
    await request('PUT', pathOf('alarms', id), { body });
  };
  const [alarm, ...others] = alarms;
  if (alarm !== undefined && others.length === 0) return put(alarm);
  const { failed } = await runEach(alarms, put, { nameOf: keyOf });
  const [failure] = failed;
  if (failure === undefined) return;
  throw new Error(`${failed.length} of ${alarms.length} could not be changed. ${failure.name}: ${failure.reason}`);
}
