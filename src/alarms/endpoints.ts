import type { Endpoint } from '../http/context.js';
import { resourceEndpoints } from '../http/resource-endpoints.js';
import { alarmrule } from '../resources/index.js';
import { createRule } from './rules.js';

/** Creates the endpoints of alarm rules (reference/alarms.md#operations). */
export function alarmEndpoints(): Endpoint[] {
  return resourceEndpoints(alarmrule, {
    create: async (ctx, values) => ({ id: await createRule(ctx, values) }),
  });
}
