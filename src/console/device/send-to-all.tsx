import { useMutation } from '@tanstack/react-query';
import { useState } from 'react';
import { type Query, readRequestId, request, send } from '../api/client.js';
import { RequestError } from '../api/errors.js';
import { useApiMutation, useSession } from '../api/hooks.js';
import type { StatusAnswer } from '../api/interface.js';
import { countOf, deviceType } from '../api/resources.js';
import { ConfirmForm } from '../edit/confirm.js';
import { SchemaForm, type Values } from '../forms/form.js';
import { formatNumber, labelOf } from '../lib/format.js';
import { ObjectLink } from '../ui/address.js';
import { Button } from '../ui/button.js';
import { Dialog } from '../ui/dialog.js';
import { Facts, Failure } from '../ui/page.js';
import { Progress, useCancellation } from '../ui/progress.js';
import {
  commandStatuses,
  countCommands,
  findLastEvent,
  followCommands,
  type SentCommands,
} from './command-progress.js';

export const all_commands_path = '/devices/commands/';
/** More commands are sent, and not followed. */
const max_followed = 100_000;
const max_named = 20;

interface Preview {
  body: Values;
  matched: number;
}

/** Sends a command to all devices that match: their number, which confirms it, then the answers as they come. */
export function SendToAllDialog({ filters, onClose }: { filters: Query; onClose(): void }) {
  const { bodyOf, can } = useSession();
  const { begin } = useCancellation();
  const [preview, setPreview] = useState<Preview>();
  const [sent, setSent] = useState<SentCommands>();
  const isFollowed = can('GET', '/events/') && preview !== undefined && preview.matched <= max_followed;

  const ask = useMutation({
    async mutationFn(body: Values) {
      const { details } = await request<StatusAnswer>('POST', all_commands_path, { query: filters, body });
      setPreview({ body, matched: Number(details.matched) });
    },
  });

  const follow = useMutation({
    mutationFn: (following: { request_id: string; after: string; count: number }) =>
      followCommands({ ...following, signal: begin(), onProgress: setSent }),
  });

  const carryOut = useApiMutation({
    async run({ body, matched }: Preview) {
      const after = isFollowed ? await findLastEvent(begin()) : '';
      const query = { ...filters, confirm: matched };
      // 5031 says that the service continues
      const { request_id = '', count } = await send('POST', all_commands_path, { query, body }).then(
        async (response) => {
          const { details } = (await response.json()) as StatusAnswer;
          return { request_id: readRequestId(response), count: Number(details.changed) };
        },
        (error) => {
          if (!(error instanceof RequestError)) throw error;
          if (error.code === 5031) return { request_id: error.request_id, count: matched };
          // another number can be confirmed
          if (error.code === 4005) setPreview({ body, matched: Number(error.details.matched) });
          throw error;
        },
      );
      return { request_id, after, count };
    },
    message: ({ count }, { body }) => `Queued ${body.name} for ${countOf(deviceType, count)}.`,
    onDone(queued) {
      if (!isFollowed) return onClose();
      setSent(new Map());
      follow.mutate(queued);
    },
  });

  return (
    <Dialog title="Send a command to all devices that match" onClose={onClose}>
      {preview === undefined ? (
        <SchemaForm
          schema={bodyOf('POST', all_commands_path)}
          submitLabel="Preview"
          mutation={ask}
          onCancel={onClose}
          callOf={(body) => ({ method: 'POST', path: all_commands_path, query: filters, body })}
        />
      ) : sent === undefined ? (
        <ConfirmForm
          text={String(preview.matched)}
          submitLabel="Send"
          mutation={carryOut}
          onConfirm={() => carryOut.mutate(preview)}
          onCancel={onClose}
        >
          <p>
            <strong>{countOf(deviceType, preview.matched)}</strong> {preview.matched === 1 ? 'gets' : 'get'} the command{' '}
            {String(preview.body.name)}.
          </p>
        </ConfirmForm>
      ) : (
        <Answers sent={sent} total={carryOut.data?.count ?? preview.matched} error={follow.error} onClose={onClose} />
      )}
    </Dialog>
  );
}

interface AnswersProps {
  sent: SentCommands;
  total: number;
  error: unknown;
  onClose(): void;
}

/** The answers so far, and the devices whose command has failed. */
function Answers({ sent, total, error, onClose }: AnswersProps) {
  const countOfStatus = (status: string) => countCommands(sent, (other) => other === status);
  const answered = countOfStatus('done') + countOfStatus('failed');
  const failed = [...sent.values()].filter(({ status }) => status === 'failed');
  return (
    <div className="stack">
      <Progress
        label={`${formatNumber(answered)} of ${countOf(deviceType, total)} answered`}
        value={answered}
        max={total}
      />
      <Facts
        label="Commands by status"
        entries={commandStatuses.map((status) => [labelOf(status), formatNumber(countOfStatus(status))])}
      />
      {failed.length > 0 && (
        <p>
          Failed:{' '}
          {failed.slice(0, max_named).map(({ device }, index) => (
            <span key={device}>
              {index > 0 && ', '}
              <ObjectLink plural="devices" id={device} />
            </span>
          ))}
          {failed.length > max_named && ` and ${formatNumber(failed.length - max_named)} more`}
        </p>
      )}
      <Failure error={error} />
      <p className="help">Devices answer when they are connected, also after you have closed this dialog.</p>
      <div className="row">
        <Button label="Close" onClick={onClose} />
      </div>
    </div>
  );
}
