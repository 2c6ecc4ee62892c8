import { type ComponentProps, type ReactNode, useState } from 'react';
import { request } from '../api/client.js';
import type { StatusAnswer } from '../api/interface.js';
import { useApiMutation } from '../api/queries.js';
import { useSession } from '../api/session.js';
import { DialogButton, SecretDialog } from '../ui/dialog.js';
import { SchemaForm, type Values } from './form.js';

interface CreateWithSecretProps {
  label: string;
  path: string;
  /** The detail of the answer that is the secret, and the title under which it is shown. */
  secret: string;
  secret_title: string;
  /** Values of the form at first. */
  initial?: Values;
  kind?: 'primary';
  /** Default: the form of the schema. */
  Form?: (props: ComponentProps<typeof SchemaForm>) => ReactNode;
}

/** A button that creates an object by a form in a dialog, and then shows its secret, if it has one. */
export function CreateWithSecret({ label, path, secret: member, secret_title, ...props }: CreateWithSecretProps) {
  const { initial, kind, Form = SchemaForm } = props;
  const [secret, setSecret] = useState<string>();
  return (
    <>
      <DialogButton label={label} {...(kind && { kind })}>
        {(close) => (
          <CreateForm
            path={path}
            initial={initial}
            Form={Form}
            onClose={close}
            onCreated={({ details }) => {
              close();
              setSecret(details[member] as string | undefined);
            }}
          />
        )}
      </DialogButton>
      <SecretDialog title={secret_title} secret={secret} onClose={() => setSecret(undefined)} />
    </>
  );
}

interface CreateFormProps extends Required<Pick<CreateWithSecretProps, 'path' | 'Form'>> {
  initial: Values | undefined;
  onClose(): void;
  onCreated(answer: StatusAnswer): void;
}

function CreateForm({ path, initial = {}, Form, onClose, onCreated }: CreateFormProps) {
  const create = useApiMutation({
    run: (body: Values) => request<StatusAnswer>('POST', path, { body }),
    onDone: onCreated,
  });
  const schema = useSession().bodyOf('POST', path);
  return (
    <Form
      schema={schema}
      initial={initial}
      submitLabel="Create"
      mutation={create}
      onCancel={onClose}
      callOf={(body) => ({ method: 'POST', path, body })}
    />
  );
}
