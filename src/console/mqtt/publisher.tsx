import { type SubmitEvent, useId, useState } from 'react';
import { pageSettings } from '../api/page-settings.js';
import { useApiMutation } from '../api/queries.js';
import { FormActions } from '../ui/button.js';
import { Failure } from '../ui/feedback.js';
import { Panel } from '../ui/page.js';
import { type Publication, publishOnce } from './publish.js';

interface PublisherProps {
  /** The login and the topic to begin with. */
  initial: Pick<Publication, 'username' | 'topic'>;
}

/** Publishes a message from the browser, as a device would. */
export function Publisher({ initial }: PublisherProps) {
  const [values, setValues] = useState<Publication>({ password: '', payload: '{"temperature": 21.5}', ...initial });
  const publish = useApiMutation({
    run: (publication: Publication) => publishOnce(brokerUrl(), publication),
    message: () => 'Published: the broker has acknowledged it.',
  });
  function submit(event: SubmitEvent): void {
    event.preventDefault();
    publish.mutate(values);
  }
  const change = (name: keyof Publication) => (value: string) => setValues((old) => ({ ...old, [name]: value }));
  return (
    <Panel title="Publish a test message">
      <form className="form" onSubmit={submit} aria-busy={publish.isPending}>
        <TextField label="Login" value={values.username} onChange={change('username')} />
        <TextField
          label="Password of the login"
          type="password"
          value={values.password}
          onChange={change('password')}
        />
        <TextField label="Topic" value={values.topic} onChange={change('topic')} />
        <TextField label="Payload" value={values.payload} onChange={change('payload')} />
        <Failure error={publish.error} />
        <FormActions label="Publish" disabled={publish.isPending} />
      </form>
    </Panel>
  );
}

function brokerUrl(): string {
  return `${location.origin.replace(/^http/, 'ws')}${pageSettings.prefix}/mqtt`;
}

interface TextFieldProps {
  label: string;
  type?: string;
  value: string;
  onChange(value: string): void;
}

function TextField({ label, type = 'text', value, onChange }: TextFieldProps) {
  const id = useId();
  return (
    <div className="field">
      <label htmlFor={id}>{label}</label>
      <input id={id} type={type} autoComplete="off" value={value} onChange={({ target }) => onChange(target.value)} />
    </div>
  );
}
