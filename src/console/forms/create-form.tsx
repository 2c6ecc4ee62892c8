import { type ComponentProps, type ReactNode, useReducer, useState } from 'react';
import { request } from '../api/client.js';
import { useApiMutation, useSession } from '../api/hooks.js';
import type { StatusAnswer } from '../api/interface.js';
import { DialogButton, SecretDialog } from '../ui/dialog.js';
import { SchemaForm, type Values } from './form.js';

type SchemaFormProps = ComponentProps<typeof SchemaForm>;

interface CreateFormProps extends Pick<SchemaFormProps, 'initial' | 'fields' | 'onCancel'> {
  path: string;
  /** The path as the interface documents it. */
  template?: string;
  submitLabel?: string;
  /** Default: the form of the schema. */
  Form?: (props: SchemaFormProps) => ReactNode;
  /** Adds what the form does not have. */
  complete?(values: Values): Values;
  /** Announced after success. */
  message?(values: Values): string;
  onCreated?(answer: StatusAnswer): void;
}

/** A form that creates objects of a list; it is empty again after each. */
export function CreateForm({ path, template = path, submitLabel = 'Create', ...props }: CreateFormProps) {
  const { Form = SchemaForm, complete = (values) => values, message, onCreated, ...form } = props;
  const [round, startOver] = useReducer((count: number) => count + 1, 0);
  const create = useApiMutation({
    run: (values: Values) => request<StatusAnswer>('POST', path, { body: complete(values) }),
    message: (_answer, values) => message?.(values),
    onDone(answer) {
      startOver();
      onCreated?.(answer);
    },
  });
  return (
    <Form
      key={round}
      {...form}
      schema={useSession().bodyOf('POST', template)}
      submitLabel={submitLabel}
      mutation={create}
      callOf={(values) => ({ method: 'POST', path, body: complete(values) })}
    />
  );
}

interface CreateWithSecretProps extends Pick<CreateFormProps, 'path' | 'initial' | 'Form'> {
  label: string;
  /** The detail of the answer that is the secret, and the title under which it is shown. */
  secret: string;
  secret_title: string;
  kind?: 'primary';
}

/** A button that creates an object by a form in a dialog, and then shows its secret, if it has one. */
export function CreateWithSecret({ label, kind, secret: member, secret_title, ...form }: CreateWithSecretProps) {
  const [secret, setSecret] = useState<string>();
  return (
    <>
      <DialogButton label={label} kind={kind}>
        {(close) => (
          <CreateForm
            {...form}
            onCancel={close}
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
