import { insertIntoFreeSlot } from '../db/free-slot.js';
import type { OperationContext } from '../objects/context.js';
import { createResource } from '../objects/resources.js';
import { max_rules } from '../resources/alarm-rule.js';
import { alarmrule } from '../resources/index.js';
import type { Values } from '../schema/fields.js';

/**
 * Creates a rule in a free slot of the account. @returns its identifier
 * @throws AppError invalid (4003), also beyond `max_rules`
 */
export async function createRule(ctx: OperationContext, values: Values): Promise<string> {
  const insert = (slot: number) => createResource(ctx, alarmrule, { ...values, slot });
  const rules = ctx.store.db.collection(alarmrule.plural);
  return insertIntoFreeSlot(rules, { account: ctx.account }, 'alarm rules of an account', insert, max_rules);
}
