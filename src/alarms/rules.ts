import { insertIntoFreeSlot } from '../db/free-slot.js';
import { AppError } from '../errors.js';
import type { OperationContext } from '../objects/context.js';
import { findOwnedBeside } from '../objects/owned-objects.js';
import type { Bson } from '../objects/page.js';
import { showResource } from '../objects/resources.js';
import { createResource } from '../objects/write/create.js';
import { max_rules } from '../resources/alarm-rule.js';
import { alarmrule } from '../resources/index.js';
import type { Values } from '../schema/fields.js';
import { getId } from '../serialize/bson.js';

/**
 * Creates a rule in a free slot of the account. @returns its identifier
 * @throws AppError invalid (4003), also beyond `max_rules`
 */
export async function createRule(ctx: OperationContext, values: Values): Promise<string> {
  const insert = (slot: number) => createResource(ctx, alarmrule, { ...values, slot });
  const rules = ctx.store.db.collection(alarmrule.plural);
  return insertIntoFreeSlot(rules, { account: ctx.account }, 'alarm rules of an account', insert, max_rules);
}

/** Shows a rule, unless it is about what is beside the limit of the key. @throws AppError notFound (4041) */
export async function showRule(ctx: OperationContext, id: string): Promise<Bson> {
  const document = await showResource(ctx, alarmrule, id);
  const _id = getId(document, '_id');
  if ((await findOwnedBeside(ctx, alarmrule)).some((beside) => beside.equals(_id))) throw new AppError('notFound');
  return document;
}
