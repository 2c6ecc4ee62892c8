import type { Id } from '../../db/ids.js';
import type { QueryPlan } from '../../db/query-plan.js';
import type { Values } from '../../schema/fields.js';
import type { ListRequest } from '../../schema/list-parameters.js';
import type { ListedType } from '../../schema/resource.js';
import type { OperationContext } from '../context.js';
import type { Bson } from '../page.js';
import type { RelatedCondition } from './related-devices.js';

/** The objects that a request selects, in an order: what every list, count, export and change of many reads. */
export interface ObjectSelection extends Omit<QueryPlan, 'candidates'>, Pick<TypeSelection, 'related' | 'readInOrder'> {
  listed: ListedType;
  /** Parts of the list, one after the other, each in the order of `sort`. */
  ranges?: readonly Values[] | undefined;
  /** The objects that `related` selects; `filter` has them, `unselected` is the filter without them. */
  selected?: readonly Id[];
  unselected: Values;
  /** If `hint` has other objects than those in reach: their index, whose order is that of the list. */
  reachIndex?: QueryPlan['hint'];
  /** Objects in `hint`, if it does not have all conditions; ranges count up to a limit. */
  examined?: number;
}

/** The part of a selection that look-ups of a type decide. */
export interface TypeSelection {
  /** Further filters that must hold. */
  filters?: readonly Values[];
  /** Conditions on documents of other collections, which select devices. */
  related?: readonly RelatedCondition[] | undefined;
  /** Parts of the list, one after the other, each in order of creation. */
  parts?: readonly Values[] | undefined;
  /** Reads in an order that is not stored in the objects. @param total all objects of the selection */
  readInOrder?:
    | ((ctx: OperationContext, selection: ObjectSelection, total: number) => AsyncIterable<readonly Bson[]>)
    | undefined;
}

/** Looks up what the conditions of a type depend on. */
export type SelectOfType = (ctx: OperationContext, request: ListRequest) => Promise<TypeSelection>;
