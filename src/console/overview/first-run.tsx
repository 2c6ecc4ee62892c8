import { useSession } from '../api/hooks.js';
import { pageSettings } from '../api/page-settings.js';
import { Command, LinkButton } from '../ui/button.js';
import { Panel } from '../ui/page.js';

export function FirstRun() {
  const { can } = useSession();
  const { base, mqtt_port } = pageSettings;
  const url = location.origin + base;
  const broker = mqtt_port === '' ? '--http-share 1' : `--mqtt mqtt://${location.hostname}:${mqtt_port}`;
  if (!can('POST', '/projects/')) return <p>This account has no projects and no devices yet.</p>;
  return (
    <div className="stack">
      <p>This account is empty. Three ways to begin:</p>
      <div className="columns">
        <Panel title="Look at a demo">
          <p>Creates a project with weather stations all over the world. Run this in the folder of the service:</p>
          <Command text={`npm run demo -- --url ${url} --key KEY`} />
          <p>Then let them send data:</p>
          <Command text={`npm run simulate -- --url ${url} --key KEY ${broker}`} />
          <p className="help">KEY is the key with which you have signed in.</p>
        </Panel>
        {can('POST', '/import/') && (
          <Panel title="Import a file">
            <p>CSV or NDJSON, with one object a line.</p>
            <LinkButton to="/import" label="Import" kind="primary" />
          </Panel>
        )}
        <Panel title="Connect a device">
          <p>A name is enough. Its page has programs that send, and draws what arrives.</p>
          <LinkButton to="/$plural/new" params={{ plural: 'devices' }} label="New device" kind="primary" />
        </Panel>
      </div>
    </div>
  );
}
