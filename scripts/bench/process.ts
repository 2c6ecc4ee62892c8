import { readFile, writeFile } from 'node:fs/promises';

const ticks_per_s = 100;

/** Processor time that a process has used since its start, in seconds; NaN where the system does not tell (not Linux). */
export async function cpuSeconds(pid: number): Promise<number> {
  const stat = await readFile(`/proc/${pid}/stat`, 'utf8').catch(() => '');
  // the name, in parentheses, may hold anything
  const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ');
  return (Number(fields[11]) + Number(fields[12])) / ticks_per_s;
}

/** Makes the peak of a process's memory the present. */
export async function resetPeak(pid: number): Promise<void> {
  await writeFile(`/proc/${pid}/clear_refs`, '5').catch(() => undefined);
}

/** The most memory that a process has occupied, in MiB; NaN where the system does not tell (not Linux). */
export async function peakMib(pid: number): Promise<number> {
  const status = await readFile(`/proc/${pid}/status`, 'utf8').catch(() => '');
  return Number(/^VmHWM:\s+(\d+) kB/m.exec(status)?.[1]) / 1024;
}
