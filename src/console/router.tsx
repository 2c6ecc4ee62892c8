import { createRootRoute, createRoute, createRouter } from '@tanstack/react-router';
import type { ReactNode } from 'react';
import { Alarms } from './alarms/alarms.js';
import { pageSettings } from './api/page-settings.js';
import { config_counts_path } from './device/config-rows.js';
import { FleetConfigs } from './device/fleet-configs.js';
import { MapView } from './device/map.js';
import { Streams } from './device/streams.js';
import { Events } from './events/events.js';
import { Import } from './import/import.js';
import { ApiKeys } from './keys/api-keys.js';
import { Connections } from './mqtt/connections.js';
import { Hierarchy } from './objects/hierarchy.js';
import { ListView } from './objects/list.js';
import { NewObject } from './objects/new.js';
import { ObjectView } from './objects/object.js';
import { Overview } from './overview/overview.js';
import { About } from './shell/about.js';
import { Shell } from './shell/shell.js';
import { forNew, forOperation, forType, NotFound } from './shell/wrappers.js';
import { Storage } from './storage/storage.js';
import { parseSearch, type Search, stringifySearch } from './ui/address.js';
import { Failure } from './ui/page.js';
import { Webhook, Webhooks } from './webhooks/webhooks.js';

const root = createRootRoute({
  component: Shell,
  notFoundComponent: NotFound,
  validateSearch: (search): Search => search as Search,
});
const route = <Path extends string>(path: Path, component: () => ReactNode) =>
  createRoute({ getParentRoute: () => root, path, component });

const routeTree = root.addChildren([
  route('/', Overview),
  route('/hierarchy', Hierarchy),
  route('/alarms', forOperation('GET', '/alarms/', Alarms)),
  route('/streams', forOperation('GET', '/streams/', Streams)),
  route('/events', forOperation('GET', '/events/', Events)),
  route('/webhooks', forOperation('GET', '/webhooks/', Webhooks)),
  route('/webhooks/$id', forOperation('GET', '/webhooks/{webhook_id_developer}/', Webhook)),
  route('/import', forOperation('POST', '/import/', Import)),
  route('/storage', forOperation('GET', '/external/{provider}/user/{username}/', Storage)),
  route('/apikeys', forOperation('GET', '/apikeys/', ApiKeys)),
  route('/connections', forOperation('GET', '/mqtt/connections/', Connections)),
  route('/about', About),
  route('/configs', forOperation('GET', config_counts_path, FleetConfigs)),
  route('/map', MapView),
  route('/$plural', forType(ListView)),
  route('/$plural/new', forNew(NewObject)),
  route('/$plural/$id', forType(ObjectView)),
]);

/** Creates the router. Static paths win over `/$plural`. */
export function createConsoleRouter() {
  return createRouter({
    routeTree,
    basepath: `${pageSettings.prefix}/console`,
    parseSearch,
    stringifySearch,
    // a part of the console that could not be loaded is asked for again by a reload only
    defaultErrorComponent: ({ error }) => <Failure error={error} onRetry={() => location.reload()} />,
    scrollRestoration: true,
  });
}

/** Types links, parameters and addresses by the routes. */
declare module '@tanstack/react-router' {
  interface Register {
    router: ReturnType<typeof createConsoleRouter>;
  }
}
