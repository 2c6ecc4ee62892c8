import { startProcess } from '../../scripts/support/service-process.js';

export interface ToolRun {
  code: number | NodeJS.Signals;
  out: string;
  /** Lines of standard error, without progress. */
  complaints: string[];
}

const demoTools = ['demo', 'simulate'];

/** Starts a command-line tool of dist/ without waiting. Of the environment it sees only what every program needs. */
export function startTool(name: string, args: readonly string[], env: NodeJS.ProcessEnv) {
  const { PATH, HOME, MONGOMS_SYSTEM_BINARY } = process.env;
  const inherited = { PATH, HOME, ...(MONGOMS_SYSTEM_BINARY !== undefined && { MONGOMS_SYSTEM_BINARY }) };
  const folder = demoTools.includes(name) ? 'demo' : 'src/cli';
  return startProcess(process.execPath, [`dist/${folder}/${name}.js`, ...args], { env: { ...inherited, ...env } });
}

/** Runs a command-line tool of dist/ to its end. */
export async function runTool(name: string, args: readonly string[], env: NodeJS.ProcessEnv = {}): Promise<ToolRun> {
  const tool = startTool(name, args, env);
  const code = await tool.ended;
  const lines = tool.err().split('\n');
  return { code, out: tool.out(), complaints: lines.filter((line) => line !== '' && !/^\d+\/\d+ /.test(line)) };
}
