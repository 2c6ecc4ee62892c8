import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { describe, expect, it } from '@jest/globals';
import { parse, parseAllDocuments } from 'yaml';
import { findMisspelledVariables, readConfig } from '../../src/config.js';

/** Time in which requests in flight are finished (reference/configuration.md#stop), in seconds. */
const drain_limit_s = 10;
const known = readFileSync('.env.example', 'utf8')
  .split('\n')
  .flatMap((line) => /^([A-Z_]+)=/.exec(line)?.[1] ?? []);
const dockerfile = readFileSync('Dockerfile', 'utf8');
const ofRuntime = ['NODE_ENV', 'HOME', 'XDG_CACHE_HOME'];

/** Reads an environment as the service does; unknown variables fail. */
function configOf(env: Record<string, string>) {
  expect(Object.keys(env).filter((name) => !known.includes(name) && !ofRuntime.includes(name))).toEqual([]);
  expect(findMisspelledVariables(env)).toEqual([]);
  return readConfig(env);
}

it('finds every file of examples/deploy tested here, or run by the tests of proxies', () => {
  expect(readdirSync('examples/deploy').sort()).toEqual(['device-platform.service', 'haproxy.cfg', 'kubernetes.yaml']);
});

describe('the Kubernetes manifests', () => {
  const documents = parseAllDocuments(readFileSync('examples/deploy/kubernetes.yaml', 'utf8'));
  // biome-ignore lint/suspicious/noExplicitAny: manifests have every shape
  const objects: any[] = documents.map((document) => document.toJS());
  const byKind = new Map(objects.map((object) => [object.kind, object]));
  const byName = new Map(objects.map((object) => [`${object.kind} ${object.metadata.name}`, object]));
  const { data } = byKind.get('ConfigMap');
  const { spec } = byKind.get('Deployment');
  const pod = spec.template.spec;
  const [container] = pod.containers;
  const secrets = { MONGODB_URI: 'mongodb://mongo-0:27017/device_platform', SECRET_KEY: 'k'.repeat(16) };
  const config = configOf({ ...data, ...secrets, BOOTSTRAP_API_KEY: 'k'.repeat(16) });

  it('parse without errors and warnings', () => {
    for (const { errors, warnings } of documents) expect([errors, warnings]).toEqual([[], []]);
    expect([...byKind.keys()].sort()).toEqual(
      [
        'ConfigMap',
        'CronJob',
        'Deployment',
        'Ingress',
        'PersistentVolumeClaim',
        'PodDisruptionBudget',
        'Service',
      ].concat('ServiceAccount'),
    );
  });

  it('have one namespace, and refer to objects that they have', () => {
    for (const { metadata } of objects) expect(metadata.namespace).toBe('device-platform');
    expect(container.envFrom).toEqual([
      { configMapRef: { name: byKind.get('ConfigMap').metadata.name } },
      { secretRef: { name: 'device-platform' } },
    ]);
    expect(pod.serviceAccountName).toBe(byKind.get('ServiceAccount').metadata.name);
    const { labels } = spec.template.metadata;
    expect(spec.selector.matchLabels).toEqual(labels);
    expect(byKind.get('PodDisruptionBudget').spec.selector.matchLabels).toEqual(labels);
    for (const { kind, spec } of objects) if (kind === 'Service') expect(spec.selector).toEqual(labels);
  });

  it('have the ports of the configuration, on an address that the cluster reaches', () => {
    expect(config.host).toBe('0.0.0.0');
    expect(container.ports).toEqual([
      { name: 'http', containerPort: config.port },
      { name: 'mqtt', containerPort: config.mqtt_port },
    ]);
    const services = ['device-platform', 'device-platform-alive', 'device-platform-mqtt'];
    const targets = services.map((name) => byName.get(`Service ${name}`).spec.ports[0].targetPort);
    expect(targets).toEqual(['http', 'http', 'mqtt']);
    expect(spec.template.metadata.annotations['prometheus.io/port']).toBe(String(config.port));
  });

  it('probe liveness without and readiness with the database', () => {
    const paths = ['startupProbe', 'livenessProbe', 'readinessProbe'].map((probe) => container[probe].httpGet);
    expect(paths).toEqual(['/healthz', '/healthz', '/readyz'].map((path) => ({ path, port: 'http' })));
  });

  it('let large imports through the ingress, but not the metrics, and answer while no instance is ready', () => {
    const { annotations } = byName.get('Ingress device-platform').metadata;
    const annotationOf = (name: string) => annotations[`nginx.ingress.kubernetes.io/${name}`];
    expect([annotationOf('proxy-body-size'), annotationOf('proxy-request-buffering')]).toEqual(['0', 'off']);
    const fallback = byName.get(`Service ${annotationOf('default-backend')}`);
    expect(fallback.spec.publishNotReadyAddresses).toBe(true);
    const metrics = byName.get('Ingress device-platform-metrics');
    expect(metrics.metadata.annotations).toBeUndefined();
    const [{ path, backend }] = metrics.spec.rules[0].http.paths;
    expect([path, byName.has(`Service ${backend.service.name}`)]).toEqual(['/metrics', false]);
  });

  it('back up each night to a volume that the job may write', () => {
    const job = byKind.get('CronJob').spec.jobTemplate.spec.template.spec;
    const [{ volumeMounts, envFrom, image, args }] = job.containers;
    expect([envFrom, image]).toEqual([container.envFrom, container.image]);
    expect(args[0]).toContain('node dist/src/cli/backup.js /backups/');
    expect(volumeMounts[0]).toEqual({ name: 'backups', mountPath: '/backups' });
    const claim = byKind.get('PersistentVolumeClaim').metadata.name;
    expect(job.volumes[0]).toEqual({ name: 'backups', persistentVolumeClaim: { claimName: claim } });
    expect(job.securityContext.fsGroup).toBe(job.securityContext.runAsUser);
  });

  it('leave time to drain', () => {
    const probe = container.readinessProbe;
    expect(config.shutdown_delay_s).toBeGreaterThan(
      probe.periodSeconds * probe.failureThreshold + probe.timeoutSeconds,
    );
    expect(pod.terminationGracePeriodSeconds).toBeGreaterThan(config.shutdown_delay_s + drain_limit_s);
  });

  it('keep an instance running during updates and drains', () => {
    expect(spec.replicas).toBeGreaterThan(byKind.get('PodDisruptionBudget').spec.minAvailable);
    expect(spec.strategy.rollingUpdate.maxUnavailable).toBe(0);
  });

  it('run without privileges and with bounded resources', () => {
    expect(container.securityContext).toEqual({
      allowPrivilegeEscalation: false,
      readOnlyRootFilesystem: true,
      capabilities: { drop: ['ALL'] },
    });
    expect(pod.securityContext.runAsNonRoot).toBe(true);
    expect(dockerfile).toContain(`USER ${pod.securityContext.runAsUser}:${pod.securityContext.runAsGroup}\n`);
    expect(container.resources.limits.memory).toBeDefined();
  });
});

describe('the systemd unit', () => {
  const lines = readFileSync('examples/deploy/device-platform.service', 'utf8')
    .split('\n')
    .filter((line) => line !== '' && !line.startsWith('#'));
  const valuesOf = (key: string) =>
    lines.filter((line) => line.startsWith(`${key}=`)).map((line) => line.slice(key.length + 1));
  const config = configOf(Object.fromEntries(valuesOf('Environment').map((pair) => pair.split(/=(.*)/, 2))));

  it('has sections and settings only', () => {
    for (const line of lines) expect(line).toMatch(/^(?:\[(?:Unit|Service|Install)\]|[A-Z][A-Za-z]+=.*)$/);
  });

  it('starts what the build makes, as the image does', () => {
    const args = ['--max-semi-space-size=32', 'dist/src/main.js'];
    expect(valuesOf('ExecStart')).toEqual([`/usr/bin/node ${args.join(' ')}`]);
    expect(dockerfile).toContain(`CMD ${JSON.stringify(['node', ...args]).replaceAll(',', ', ')}`);
    expect(readFileSync('package.json', 'utf8')).toContain(`node ${args[0]} scripts/run.js ${args[1]}`);
    expect(existsSync('src/main.ts')).toBe(true);
  });

  it('lets the service write its data and its cache only', () => {
    const state = `/var/lib/${valuesOf('StateDirectory')[0]}`;
    expect(config.data_dir.startsWith(`${state}/`)).toBe(true);
    expect(valuesOf('ProtectSystem')).toEqual(['strict']);
    expect(valuesOf('NoNewPrivileges')).toEqual(['yes']);
    expect(valuesOf('CapabilityBoundingSet')).toEqual(['']);
  });

  it('leaves time to drain', () => {
    expect(Number(valuesOf('TimeoutStopSec')[0])).toBeGreaterThan(config.shutdown_delay_s + drain_limit_s);
    expect(valuesOf('KillMode')).toEqual(['mixed']);
  });
});

describe('compose.yaml', () => {
  const { services, volumes } = parse(readFileSync('compose.yaml', 'utf8'));

  it('passes variables that the service knows, with the ports of the image', () => {
    const { environment, ports } = services.platform;
    expect(Object.keys(environment).filter((name) => !known.includes(name))).toEqual([]);
    expect(dockerfile).toContain('EXPOSE 3000 1883 8883\n');
    expect(ports).toEqual(['127.0.0.1:3000:3000', '127.0.0.1:1883:1883']);
  });

  it.each(['platform', 'mongo'])('limits %s, with a read-only root and without capabilities', (name) => {
    expect(services[name]).toMatchObject({
      read_only: true,
      cap_drop: ['ALL'],
      security_opt: ['no-new-privileges:true'],
      mem_limit: expect.stringMatching(/^\dg$/),
      cpus: 2,
    });
    const mounts = services[name].volumes.map((mount: string) => mount.split(':')[0]);
    expect(mounts.filter((volume: string) => !(volume in volumes))).toEqual([]);
  });

  it('checks the health of both, and leaves time to drain', () => {
    expect(dockerfile).toMatch(/^HEALTHCHECK .*\\\n.*\/healthz/m);
    expect(services.mongo.healthcheck.test[0]).toBe('CMD');
    expect(Number.parseInt(services.platform.stop_grace_period, 10)).toBeGreaterThan(drain_limit_s);
  });
});
