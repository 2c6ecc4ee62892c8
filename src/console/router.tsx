import { createRootRoute, createRoute, createRouter } from '@tanstack/react-router';
import type { ReactNode } from 'react';
import { parseSearch, stringifySearch } from './address.js';
import { pageSettings } from './api/page-settings.js';
import { Failure } from './components/feedback.js';
import { About } from './views/about.js';
import { ApiKeys } from './views/api-keys.js';
import { Events } from './views/events.js';
import { Hierarchy } from './views/hierarchy.js';
import { Import } from './views/import.js';
import { ListView } from './views/list.js';
import { MapView } from './views/map.js';
import { NewObject } from './views/new.js';
import { NotFound } from './views/not-found.js';
import { ObjectView } from './views/object.js';
import { Overview } from './views/overview.js';
import { Shell } from './views/shell.js';
import { Storage } from './views/storage.js';
import { Streams } from './views/streams.js';
import { Webhook, Webhooks } from './views/webhooks.js';
import { forOperation, forType } from './views/wrappers.js';

const root = createRootRoute({ component: Shell, notFoundComponent: NotFound });
const route = (path: string, component: () => ReactNode) =>
  createRoute({ getParentRoute: () => root, path, component });

const routes = [
  route('/', Overview),
  route('/hierarchy', Hierarchy),
  route('/streams', forOperation('GET', '/streams/', Streams)),
  route('/events', forOperation('GET', '/events/', Events)),
  route('/webhooks', forOperation('GET', '/webhooks/', Webhooks)),
  route('/webhooks/$id', forOperation('GET', '/webhooks/{webhook_id_developer}/', Webhook)),
  route('/import', forOperation('POST', '/import/', Import)),
  route('/storage', forOperation('GET', '/external/{provider}/user/{username}/', Storage)),
  route('/apikeys', forOperation('GET', '/apikeys/', ApiKeys)),
  route('/about', About),
  route('/map', MapView),
  route('/$plural', forType(ListView)),
  route('/$plural/new', forType(NewObject)),
  route('/$plural/$id', forType(ObjectView)),
];

/** Creates the router. Static paths win over `/$plural`. */
export function createConsoleRouter() {
  return createRouter({
    routeTree: root.addChildren(routes),
    basepath: `${pageSettings.prefix}/console`,
    parseSearch,
    stringifySearch,
    // a part of the console that could not be loaded is asked for again by a reload only
    defaultErrorComponent: ({ error }) => <Failure error={error} onRetry={() => location.reload()} />,
    scrollRestoration: true,
  });
}
