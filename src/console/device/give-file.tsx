import { useMutation } from '@tanstack/react-query';
import { useNavigate } from '@tanstack/react-router';
import { useState } from 'react';
import { pathOf, type Query, request } from '../api/client.js';
import { RequestError } from '../api/errors.js';
import { useApiMutation, useList, useSession } from '../api/hooks.js';
import type { StatusAnswer } from '../api/interface.js';
import { countOf, deviceType } from '../api/resources.js';
import { FirstRows } from '../edit/bulk-dialog.js';
import { ConfirmForm } from '../edit/confirm.js';
import { SchemaForm, type Values } from '../forms/form.js';
import { toBase64 } from '../lib/encode.js';
import { wait } from '../lib/wait.js';
import { Select } from '../ui/choice.js';
import { Dialog } from '../ui/dialog.js';
import { type ConfigCount, config_counts_path, joinCounts, many_configs_path, max_counts } from './config-rows.js';

const retry_ms = 1000;
const max_tries = 60;

export interface FileVersion {
  name: string;
  version: string;
}

interface Gift extends FileVersion {
  /** Content in base64; absent: the devices have the version. */
  file?: string;
}

interface GiveFileProps {
  filters: Query;
  /** The version to choose, in place of those that the devices shall have. */
  chosen?: FileVersion | undefined;
  onClose(): void;
}

/** Makes a version of a file the desired one of all devices that match: one that they have, or that they get first. */
export function GiveFileDialog({ filters, chosen, onClose }: GiveFileProps) {
  const [preview, setPreview] = useState<Gift & { matched: number }>();
  const navigate = useNavigate();
  const ask = useMutation({
    async mutationFn(gift: Gift) {
      setPreview({ ...gift, matched: await give(gift, filters) });
    },
  });
  const carryOut = useApiMutation({
    async run({ matched, file, ...version }: Gift & { matched: number }) {
      const query = { ...filters, confirm: matched };
      try {
        if (file !== undefined) await repeat(() => give({ ...version, file }, query));
        await give(version, query);
      } catch (failure) {
        if (!(failure instanceof RequestError)) throw failure;
        // another number can be confirmed
        if (failure.code === 4005) setPreview({ ...version, file, matched: Number(failure.details.matched) });
        throw failure;
      }
    },
    message: (_, { name, version, matched }) =>
      `${countOf(deviceType, matched)} shall have version ${version} of ${name}.`,
    onDone(_, { name }) {
      onClose();
      const others = Object.entries(filters).filter(([parameter]) => !parameter.startsWith('config'));
      void navigate({ to: '/configs', search: { ...Object.fromEntries(others), config: name } });
    },
  });
  return (
    <Dialog title="Give a file to all devices that match" onClose={onClose}>
      {preview === undefined ? (
        <Choice filters={filters} chosen={chosen} mutation={ask} onCancel={onClose} />
      ) : (
        <ConfirmForm
          text={String(preview.matched)}
          submitLabel="Give"
          mutation={carryOut}
          onConfirm={() => carryOut.mutate(preview)}
          onCancel={onClose}
        >
          <p>
            <strong>{countOf(deviceType, preview.matched)}</strong> shall have version {preview.version} of{' '}
            {preview.name}
            {preview.file && ', which is stored for those that do not have it'}.
          </p>
          <FirstRows type={deviceType} filters={filters} />
        </ConfirmForm>
      )}
    </Dialog>
  );
}

/** Stores the file, or makes the version the desired one, if there is `confirm`. @returns the number of matches */
async function give({ name, version, file }: Gift, query: Query): Promise<number> {
  const desired_path = pathOf('devices', 'deviceconfigs', name, 'desired');
  const { details } = await (file === undefined
    ? request<StatusAnswer>('PUT', desired_path, { query, body: { version } })
    : request<StatusAnswer>('POST', many_configs_path, { query, body: { name, version, file } }));
  return Number(details.matched);
}

/** Repeats what takes longer than a request may: the service continues, and a repetition changes only what is left. */
async function repeat(run: () => Promise<unknown>): Promise<void> {
  for (let tries = 1; ; tries++)
    try {
      await run();
      return;
    } catch (error) {
      if (!(error instanceof RequestError) || error.code !== 5031 || tries === max_tries) throw error;
      await wait(retry_ms);
    }
}

interface ChoiceProps extends Pick<GiveFileProps, 'filters' | 'chosen'> {
  mutation: { mutate(gift: Gift): void; error: unknown; isPending: boolean };
  onCancel(): void;
}

const keyOf = ({ name, version }: FileVersion) => `${name} ${version}`;

/** A version that some of the devices shall have, or a file to upload. */
function Choice({ filters, chosen, mutation, onCancel }: ChoiceProps) {
  const query = { ...filters, max: max_counts };
  const counts = useList<ConfigCount>(config_counts_path, query, { enabled: chosen === undefined });
  const desired = joinCounts(counts.data?.result ?? []).flatMap(({ name, desired: version }) =>
    version === null ? [] : [{ name, version }],
  );
  const versions = chosen ? [chosen] : desired;
  const [picked, setPicked] = useState(chosen ? keyOf(chosen) : '');
  const [file, setFile] = useState<File>();
  const version = versions.find((other) => keyOf(other) === picked);
  const read = useMutation({
    async mutationFn(values: Values) {
      if (version !== undefined) return mutation.mutate(version);
      if (file === undefined) throw new RequestError(400, 4003, 'validation error', { file: 'choose a file' });
      const { name, version: entered } = values as Partial<FileVersion>;
      mutation.mutate({ name: name ?? file.name, version: entered ?? '', file: await toBase64(file) });
    },
  });
  return (
    <div className="stack">
      <span>
        Which file{' '}
        <Select
          aria-label="Which file"
          value={picked}
          options={versions.map((other) => [keyOf(other), keyOf(other)])}
          empty="One to upload"
          onChange={setPicked}
        />
      </span>
      <SchemaForm
        schema={{ ...useSession().bodyOf('POST', many_configs_path), required: ['version'] }}
        fields={version === undefined ? ['name', 'version'] : []}
        submitLabel="Preview"
        mutation={{ ...mutation, mutate: read.mutate, error: read.error ?? mutation.error }}
        onCancel={onCancel}
      >
        {() => version === undefined && <FileField id="file-for-many" onChoose={setFile} />}
      </SchemaForm>
    </div>
  );
}

/** The field of a configuration file to upload. */
export function FileField({ id, onChoose }: { id: string; onChoose(file: File | undefined): void }) {
  return (
    <div className="field">
      <label htmlFor={id}>
        File<span className="required"> (required)</span>
      </label>
      <input id={id} type="file" onChange={({ target }) => onChoose(target.files?.[0])} />
    </div>
  );
}
