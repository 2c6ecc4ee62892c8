import { relative } from 'node:path';
import * as ast from 'typescript/unstable/ast';
import { API, type Checker, SignatureKind, type Type, TypeFlags } from 'typescript/unstable/sync';

const { SyntaxKind } = ast;

/** Expressions that have the value of an operand. */
const transparent: ReadonlySet<ast.SyntaxKind> = new Set([
  SyntaxKind.ParenthesizedExpression,
  SyntaxKind.AsExpression,
  SyntaxKind.NonNullExpression,
  SyntaxKind.ConditionalExpression,
  SyntaxKind.BinaryExpression,
  SyntaxKind.SpreadElement,
  SyntaxKind.ArrayLiteralExpression,
]);

/** Hand a promise over to what awaits it. */
const receiving: ReadonlySet<ast.SyntaxKind> = new Set([
  SyntaxKind.AwaitExpression,
  SyntaxKind.YieldExpression,
  SyntaxKind.ReturnStatement,
  SyntaxKind.ArrowFunction,
  SyntaxKind.PropertyAccessExpression,
]);

/** Attach handlers to their promises at once. */
const handlers = /^(?:Promise\.(?:all|allSettled|any|race)|awaitLater)$/;
/** Return promises that never reject, or that are stored and were handled before. */
const harmless = /^(?:Promise\.(?:allSettled|resolve)|awaitLater)$|\.get$/;

/**
 * Finds promises that may reject before they have a handler: a call that returns one is awaited, returned, or passed to
 * `catch`, `then` with two functions, a combinator of `Promise` or `awaitLater`; and no such function is a callback whose
 * result is ignored. @returns file, line and text of each
 */
export function findUnhandledPromises(isIncluded: (file: string) => boolean): string[] {
  const api = new API({ cwd: process.cwd() });
  try {
    const [project] = api.updateSnapshot({ openProjects: ['tests/unit/fixtures/tsconfig.json'] }).getProjects();
    if (project === undefined) throw new Error('no project');
    const { program, checker } = project;
    const { holdsPromise, returnsPromise, returnsVoid } = createTypeTests(checker);
    return program.getSourceFileNames().flatMap((path) => {
      const name = relative(process.cwd(), path);
      const file = isIncluded(name) ? program.getSourceFile(path) : undefined;
      if (file === undefined) return [];
      const nodes = [...nodesOf(file)];
      const started = nodes.filter((node) => ast.isCallExpression(node) || ast.isNewExpression(node)).filter(isLeft);
      const callbacks = nodes.flatMap(callbacksOf);
      const [typesOfStarted, typesOfCallbacks] = [started, callbacks].map((each) => checker.getTypeAtLocation(each));
      const ignored = callbacks
        .filter((_, index) => returnsPromise(typesOfCallbacks?.[index]))
        .filter((node) => returnsVoid(checker.getContextualType(node as ast.Expression)));
      return [...started.filter((_, index) => holdsPromise(typesOfStarted?.[index])), ...ignored].map((node) => {
        const line = file.text.slice(0, node.getStart(file)).split('\n').length;
        return `${name}:${line} ${node.getText(file).split('\n', 1)}`;
      });
    });
  } finally {
    api.close();
  }
}

function* nodesOf(node: ast.Node): Generator<ast.Node> {
  yield node;
  const children: ast.Node[] = [];
  node.forEachChild((child) => {
    children.push(child);
  });
  for (const child of children) yield* nodesOf(child);
}

/** True for `catch` with a function and `then` with two: their own promise only rejects if these functions throw. */
function isSettled(node: ast.Node): boolean {
  if (!ast.isCallExpression(node) || !ast.isPropertyAccessExpression(node.expression)) return false;
  const { text } = node.expression.name;
  return text === 'catch' ? node.arguments.length === 1 : text === 'then' && node.arguments.length === 2;
}

/** True if the promise of a call, if it is one, is left to itself: its syntax shows no handler. */
function isLeft(node: ast.CallExpression | ast.NewExpression): boolean {
  const [executor] = node.arguments ?? [];
  const cannotReject = executor && ast.isArrowFunction(executor) && executor.parameters.length < 2;
  if (ast.isNewExpression(node) ? cannotReject : harmless.test(node.expression.getText())) return false;
  let used: ast.Node = node;
  for (; transparent.has(used.parent.kind); used = used.parent) {
    const elements = ast.isArrayLiteralExpression(used.parent) ? [...used.parent.elements] : [];
    // what is awaited between two promises of a list delays the handler of the first
    if (elements.some((element) => element.pos > used.pos && ast.isAwaitExpression(element))) return true;
  }
  const { parent } = used;
  if (ast.isCallExpression(parent)) return !handlers.test(parent.expression.getText());
  if (ast.isExpressionStatement(parent) || ast.isVoidExpression(parent)) return !isSettled(node);
  return !receiving.has(parent.kind);
}

/** Functions that are passed on: their results may be ignored. */
function callbacksOf(node: ast.Node): readonly ast.Node[] {
  if (ast.isPropertyAssignment(node)) return [node.initializer];
  if (!ast.isCallExpression(node) && !ast.isNewExpression(node)) return [];
  if (node.expression.getText().endsWith('.finally')) return [];
  return (node.arguments ?? []).filter((each) => !ast.isArrowFunction(each) || !isSettled(each.body));
}

function createTypeTests(checker: Checker) {
  const memorize = (test: (type: Type) => boolean) => {
    const results = new Map<number, boolean>();
    return (type: Type | undefined): boolean => {
      if (type === undefined) return false;
      const result = results.get(type.id) ?? test(type);
      results.set(type.id, result);
      return result;
    };
  };
  const typesOf = (type: Type) => (type.isUnionType() ? type.getTypes() : [type]);
  const returnTypesOf = (type: Type) =>
    checker.getSignaturesOfType(type, SignatureKind.Call).map((each) => checker.getReturnTypeOfSignature(each));

  /** A promise, or a list that contains one. */
  const holdsPromise = memorize((type) => {
    if (type.isUnionType()) return type.getTypes().some(holdsPromise);
    if (!type.isObjectType() || !type.isTypeReference()) return false;
    if (type.getSymbol()?.name === 'Promise') return true;
    return checker.isArrayLikeType(type) && checker.getTypeArguments(type).some(holdsPromise);
  });
  const returnsPromise = memorize((type) => type.isObjectType() && returnTypesOf(type).some(holdsPromise));
  const returnsVoid = memorize((type) => {
    const types = typesOf(type).flatMap(returnTypesOf);
    return types.length > 0 && types.every((each) => each !== undefined && (each.flags & TypeFlags.Void) !== 0);
  });
  return { holdsPromise, returnsPromise, returnsVoid };
}
