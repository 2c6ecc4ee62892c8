import { createRootRoute, createRoute, createRouter, type RouteComponent } from '@tanstack/react-router';
import { type ComponentProps, type ComponentType, lazy } from 'react';
import { pageSettings } from './api/page-settings.js';
import { config_counts_path } from './device/config-rows.js';
import { Overview } from './overview/overview.js';
import { Shell } from './shell/shell.js';
import { forNew, forOperation, forType, NotFound } from './shell/wrappers.js';
import { parseSearch, type Search, stringifySearch } from './ui/address.js';
import { Failure, Loading } from './ui/page.js';

const root = createRootRoute({
  component: Shell,
  notFoundComponent: NotFound,
  validateSearch: (search): Search => search as Search,
});
type Views = typeof import('./views.js');

/** A view that is loaded when one of these is opened first: the overview comes without their code. */
function later<Name extends keyof Views>(name: Name) {
  type Props = ComponentProps<Views[Name]>;
  return lazy(async () => ({ default: (await import('./views.js'))[name] as ComponentType<Props> }));
}

const route = <Path extends string>(path: Path, component: ComponentType) =>
  createRoute({ getParentRoute: () => root, path, component: component as RouteComponent });

const routeTree = root.addChildren([
  route('/', Overview),
  route('/hierarchy', later('Hierarchy')),
  route('/alarms', forOperation('GET', '/alarms/', later('Alarms'))),
  route('/streams', forOperation('GET', '/streams/', later('Streams'))),
  route('/events', forOperation('GET', '/events/', later('Events'))),
  route('/webhooks', forOperation('GET', '/webhooks/', later('Webhooks'))),
  route('/webhooks/$id', forOperation('GET', '/webhooks/{webhook_id_developer}/', later('Webhook'))),
  route('/import', forOperation('POST', '/import/', later('Import'))),
  route('/storage', forOperation('GET', '/external/{provider}/user/{username}/', later('Storage'))),
  route('/apikeys', forOperation('GET', '/apikeys/', later('ApiKeys'))),
  route('/connections', forOperation('GET', '/mqtt/connections/', later('Connections'))),
  route('/about', later('About')),
  route('/configs', forOperation('GET', config_counts_path, later('FleetConfigs'))),
  route('/map', later('MapView')),
  route('/$plural', forType(later('ListView'))),
  route('/$plural/new', forNew(later('NewObject'))),
  route('/$plural/$id', forType(later('ObjectView'))),
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
    defaultPendingComponent: () => <Loading height="100vh" />,
    scrollRestoration: true,
  });
}

/** Types links, parameters and addresses by the routes. */
declare module '@tanstack/react-router' {
  interface Register {
    router: ReturnType<typeof createConsoleRouter>;
  }
}
