import {
  type Declaration,
  type Module,
  type ModuleItem,
  type Pattern,
  parseSync,
  type TsTypeAnnotation,
} from '@swc/core';

/** Yields every node of a syntax tree, in no particular order. */
export function* nodesOf(tree: unknown): Generator<Record<string, unknown>> {
  const open = [tree];
  for (let part = open.pop(); part !== undefined; part = open.pop()) {
    if (typeof part !== 'object' || part === null) continue;
    if ('type' in part) yield part as Record<string, unknown>;
    for (const below of Object.values(part)) if (typeof below === 'object' && below !== null) open.push(below);
  }
}

/** Parses TypeScript. */
export const parse = (text: string): Module => parseSync(text, { syntax: 'typescript', target: 'es2022' });

/** The declaration of a module item, with or without `export`. */
export function declarationOf(item: ModuleItem): ModuleItem | Declaration {
  return item.type === 'ExportDeclaration' ? item.declaration : item;
}

/** Names that a declaration of a variable, function, class or type introduces. */
export function namesOf(declared: ModuleItem | Declaration): string[] {
  switch (declared.type) {
    case 'FunctionDeclaration':
    case 'ClassDeclaration':
      return [declared.identifier.value];
    case 'TsInterfaceDeclaration':
    case 'TsTypeAliasDeclaration':
    case 'TsEnumDeclaration':
      return [declared.id.value];
    case 'VariableDeclaration':
      return declared.declarations.flatMap(({ id }) => boundNamesOf(id));
    default:
      return [];
  }
}

function boundNamesOf(pattern: Pattern): string[] {
  switch (pattern.type) {
    case 'Identifier':
      return [pattern.value];
    case 'AssignmentPattern':
      return boundNamesOf(pattern.left);
    case 'RestElement':
      return boundNamesOf(pattern.argument);
    case 'ArrayPattern':
      return pattern.elements.flatMap((element) => (element ? boundNamesOf(element) : []));
    case 'ObjectPattern':
      return pattern.properties.flatMap((property) => {
        if (property.type === 'AssignmentPatternProperty') return [property.key.value];
        return boundNamesOf(property.type === 'RestElement' ? property.argument : property.value);
      });
    default:
      return [];
  }
}

/** Exported functions of a module, with the name of the type that each is declared to return. */
export function exportedFunctionsOf(tree: Module): { name: string; returns: string | undefined }[] {
  return tree.body.flatMap((item) => {
    if (item.type !== 'ExportDeclaration') return [];
    const { declaration } = item;
    if (declaration.type === 'FunctionDeclaration')
      return [{ name: declaration.identifier.value, returns: typeNameOf(declaration.returnType) }];
    if (declaration.type !== 'VariableDeclaration') return [];
    return declaration.declarations.flatMap(({ id, init }) =>
      init?.type === 'ArrowFunctionExpression' || init?.type === 'FunctionExpression'
        ? boundNamesOf(id).map((name) => ({ name, returns: typeNameOf(init.returnType) }))
        : [],
    );
  });
}

function typeNameOf(annotation: TsTypeAnnotation | null | undefined): string | undefined {
  const type = annotation?.typeAnnotation;
  return type?.type === 'TsTypeReference' && type.typeName.type === 'Identifier' ? type.typeName.value : undefined;
}

/** Names of variables, parameters and members, wherever they are declared. */
export function valueNamesOf(tree: Module): string[] {
  return [...nodesOf(tree)].flatMap((node) => {
    const { type, id, pat, key, params } = node as unknown as { type: string; params: Pattern[] } & Record<
      'id' | 'pat' | 'key',
      Pattern
    >;
    switch (type) {
      case 'VariableDeclarator':
        return boundNamesOf(id);
      case 'Parameter':
        return boundNamesOf(pat);
      case 'ArrowFunctionExpression':
        return params.flatMap(boundNamesOf);
      case 'TsPropertySignature':
      case 'TsMethodSignature':
        return boundNamesOf(key);
      default:
        return [];
    }
  });
}

/** Named functions of a module, with the number of lines of each. @param text what `tree` was parsed from */
export function functionLengthsOf(tree: Module, text: string): { name: string; lines: number }[] {
  const bytes = Buffer.from(text);
  return [...nodesOf(tree)].flatMap((node) => {
    const { type, identifier, id, init } = node as unknown as Record<
      'identifier' | 'id' | 'init',
      { type: string; value: string }
    > & { type: string };
    const isAssigned = type === 'VariableDeclarator' && /Function|Arrow/.test(init?.type ?? '');
    if (type !== 'FunctionDeclaration' && !isAssigned) return [];
    const { start, end } = node.span as { start: number; end: number };
    // spans count bytes from the first text that the process has parsed
    const code = bytes.subarray(start - tree.span.start, end - tree.span.start).toString();
    return [{ name: (isAssigned ? id : identifier).value, lines: code.split('\n').length }];
  });
}
