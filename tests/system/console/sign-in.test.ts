import { once } from 'node:events';
import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { afterAll, afterEach, beforeAll, beforeEach, expect, it } from '@jest/globals';
import type Provider from 'oidc-provider';
import { type Browser, chromium, type Page } from 'playwright-core';
import { chromiumFlags, chromiumPath } from '../../../scripts/support/browser.js';
import { describeInBrowser, findAxeViolations, waitForView } from '../../support/browser.js';
import { client_id, createProvider, generateKey } from '../../support/issuer.js';
import { openSandbox, type RunningService, type Sandbox } from '../../support/process.js';

/** Values of the claim of each user. */
const users: Readonly<Record<string, unknown>> = {
  olga: { account: 'demo', username: 'olga', scope: 'write' },
  nobody: undefined,
};
const token_lifetime_s = 300;

describeInBrowser('the sign-in with OpenID Connect', () => {
  let sandbox: Sandbox;
  let service: RunningService;
  let browser: Browser;
  let server: Server;
  let issuer: string;
  let provider: Provider;
  let page: Page;
  const problems: string[] = [];

  beforeAll(async () => {
    server = createServer((request, response) => void provider.callback()(request, response));
    await once(server.listen(0, '127.0.0.1'), 'listening');
    issuer = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
    sandbox = await openSandbox();
    const uri = new URL(process.env.TEST_MONGODB_URI ?? '');
    uri.pathname = `/sign-in-${process.pid}-${Date.now()}`;
    service = await sandbox.service({
      MONGODB_URI: uri.href,
      SECRET_KEY: 'a key that only tests have',
      BOOTSTRAP_API_KEY: 'console-test-key',
      OIDC_ISSUER: issuer,
      OIDC_CLIENT_ID: client_id,
      OIDC_CLAIM: 'device_platform',
      LOG_FORMAT: 'json',
    });
    const { jwk } = await generateKey('RS256', 'k-1');
    provider = await createProvider(issuer, {
      jwks: { keys: [jwk] },
      cookies: { keys: ['a key that only tests have'] },
      clients: [
        {
          client_id,
          token_endpoint_auth_method: 'none',
          redirect_uris: [`${service.url}/console/`],
          grant_types: ['authorization_code', 'refresh_token'],
          response_types: ['code'],
        },
      ],
      claims: { openid: ['sub', 'device_platform'] },
      conformIdTokenClaims: false,
      clientBasedCORS: (_ctx, origin) => origin === service.url,
      findAccount: (_ctx, accountId) => ({
        accountId,
        claims: () => ({ sub: accountId, device_platform: users[accountId] }),
      }),
      issueRefreshToken: async () => true,
      ttl: {
        AccessToken: 60,
        IdToken: token_lifetime_s,
        RefreshToken: 3600,
        Session: 3600,
        Grant: 3600,
        Interaction: 600,
      },
      features: { revocation: { enabled: true, allowedPolicy: async () => true } },
    });
    browser = await chromium.launch({ executablePath: chromiumPath ?? '', args: chromiumFlags });
  });

  beforeEach(async () => {
    const context = await browser.newContext({ locale: 'en-GB' });
    context.setDefaultTimeout(60_000);
    page = await context.newPage();
    page.on('pageerror', (error) => problems.push(`thrown: ${error.message}`));
    page.on('console', (message) => {
      const isAnswer =
        /^Failed to load resource: (?:the server responded with a status of 4|net::ERR_CONNECTION_REFUSED)/;
      if (message.type() === 'error' && !isAnswer.test(message.text()) && page.url().startsWith(service.url))
        problems.push(`log: ${message.text()}`);
    });
  });

  afterEach(async () => {
    await page.context().close();
    expect(problems.splice(0)).toEqual([]);
  });

  afterAll(async () => {
    await browser?.close();
    await sandbox?.close();
    server.closeAllConnections();
    server.close();
  });

  const button = () => page.getByRole('button', { name: `Sign in with ${new URL(issuer).host}` });
  const heading = (name: string) => page.getByRole('heading', { level: 1, name });

  const storedItems = () =>
    page.evaluate("Object.keys(sessionStorage).filter((name) => name.startsWith('device-platform.'))");

  /** Opens a view and signs in on the pages of the provider. */
  async function signIn(user: string, path = ''): Promise<void> {
    await page.goto(`${service.url}/console/${path}`);
    await button().click();
    await page.locator('[name=login]').fill(user);
    await page.locator('[name=password]').fill('any');
    await page.getByRole('button', { name: 'Sign-in' }).click();
    await page.getByRole('button', { name: 'Continue' }).click();
  }

  it('leads to the issuer and back to the view, and acts for the user', async () => {
    await page.goto(`${service.url}/console/`);
    await button().waitFor();
    expect(await findAxeViolations(page)).toEqual([]);
    const sent: string[] = [];
    page.on('request', (request) => {
      const { authorization = '', 'service.apikey': key } = request.headers();
      if (new URL(request.url()).pathname.endsWith('/projects/')) sent.push(`${authorization.slice(0, 9)} ${key}`);
    });
    await signIn('olga', 'projects?order=-1');
    await heading('Projects').waitFor();
    await waitForView(page);
    expect(page.url()).toBe(`${service.url}/console/projects?order=-1`);
    expect(new Set(sent)).toEqual(new Set(['Bearer ey undefined']));
    await page.locator('summary', { hasText: 'olga' }).click();
    await page.getByText('Scope of the key: write').waitFor();
    expect(await page.getByRole('link', { name: 'API keys' }).count()).toBe(0);
    await page.goto(`${service.url}/console/projects/new`);
    await page.getByLabel('Name').fill('Plant');
    await page.getByLabel('Id customer').or(page.getByLabel('Customer')).fill('c-1');
    await page.getByRole('button', { name: 'Create' }).click();
    await heading('Plant').waitFor();
    expect((await service.send('GET', '/projects/Plant@demo/')).body).toMatchObject({ owner: 'olga' });
    expect(service.out()).toContain('"path":"/console/?code=***&state=***&iss=***"');
    expect(service.out()).not.toMatch(/code=(?!\*\*\*)|eyJ/);
  });

  it('renews the token before it expires, once for all requests', async () => {
    await page.clock.install();
    await signIn('olga');
    await heading('Overview').waitFor();
    // by the clock of the browser: two tokens of one second are equal
    const issuedAt = "JSON.parse(sessionStorage['device-platform.tokens']).issued_at_ms";
    const first = Number(await page.evaluate(issuedAt));
    const renewals: string[] = [];
    page.on('request', (request) => {
      if (request.method() === 'POST' && request.url() === `${issuer}/token`) renewals.push(request.postData() ?? '');
    });
    await page.clock.fastForward(token_lifetime_s * 0.5 * 1000);
    await page.getByRole('link', { name: 'Devices' }).first().click();
    await heading('Devices').waitFor();
    await waitForView(page);
    expect(renewals).toEqual([]);
    await page.clock.fastForward(token_lifetime_s * 0.3 * 1000);
    await page.getByRole('link', { name: 'Models' }).click();
    await heading('Models').waitFor();
    await waitForView(page);
    expect(renewals).toEqual([expect.stringContaining('grant_type=refresh_token')]);
    expect(Number(await page.evaluate(issuedAt))).toBeGreaterThan(first + token_lifetime_s * 0.8 * 1000);
  });

  it('asks to sign in again when the issuer has ended the session, or the service refuses the token', async () => {
    await page.clock.install();
    await signIn('olga', 'devices');
    await heading('Devices').waitFor();
    await waitForView(page);
    await page.route(`${issuer}/token`, (route) =>
      route.fulfill({
        status: 400,
        headers: { 'Access-Control-Allow-Origin': service.url },
        json: { error: 'invalid_grant' },
      }),
    );
    await page.clock.fastForward(token_lifetime_s * 0.8 * 1000);
    // the view itself reads again, or the feed of a list
    await page.getByRole('alert').getByText('Your session has ended. Sign in again.').waitFor();
    await page.unroute(`${issuer}/token`);
    // the issuer knows the user still
    await button().click();
    await heading('Devices').waitFor();
    await page.route('**/models/?**', (route) =>
      route.fulfill({
        status: 401,
        json: { code: 4011, message: 'unauthorized', details: { 'service.apikey': 'is not valid' } },
      }),
    );
    await page.getByRole('link', { name: 'Models' }).first().click();
    await page.getByRole('alert').getByText('Your sign-in is no longer valid. Sign in again.').waitFor();
  });

  it('goes on with a token that is valid while the issuer does not answer', async () => {
    await page.clock.install();
    await signIn('olga', 'devices');
    await heading('Devices').waitFor();
    await page.route(`${issuer}/**`, (route) => route.abort('connectionrefused'));
    await page.clock.fastForward(token_lifetime_s * 0.8 * 1000);
    await page.getByRole('link', { name: 'Models' }).click();
    await heading('Models').waitFor();
    await waitForView(page);
    await page.clock.fastForward(token_lifetime_s * 0.3 * 1000);
    await page.getByRole('link', { name: 'Events' }).click();
    await page.getByRole('alert').getByText('The service does not answer.').waitFor();
    await page.unroute(`${issuer}/**`);
    await page.clock.fastForward(60_000);
    await heading('Events').waitFor();
    await waitForView(page);
  });

  it('says that a user has no access, and signs out, also at the issuer', async () => {
    await signIn('nobody');
    await heading('No access').waitFor();
    expect(await findAxeViolations(page)).toEqual([]);
    const revoked = page.waitForRequest(`${issuer}/token/revocation`);
    await page.getByRole('button', { name: 'Sign out' }).click();
    await heading('Sign in').waitFor();
    await revoked;
    expect(await storedItems()).toEqual([]);
    const link = page.getByRole('link', { name: 'sign out there, too' });
    await link.waitFor();
    expect(await findAxeViolations(page)).toEqual([]);
    await link.click();
    await page.getByRole('button', { name: 'Yes, sign me out' }).click();
    await page.getByRole('heading', { name: 'Sign-out Success' }).waitFor();
    await signIn('olga');
    await heading('Overview').waitFor();
  });

  it('says why a sign-in has failed', async () => {
    await page.goto(`${service.url}/console/devices`);
    await button().click();
    await page.getByRole('link', { name: 'Cancel' }).click();
    await page.getByRole('alert').getByText('The sign-in has failed: ').waitFor();
    expect(page.url()).toBe(`${service.url}/console/devices`);
    await page.route(`${issuer}/**`, (route) => route.abort('connectionrefused'));
    await button().click();
    await page
      .getByRole('alert')
      .getByText(`${new URL(issuer).host} cannot be used: `)
      .waitFor();
    await page.getByLabel('API key').fill(service.key);
    await page.getByRole('button', { name: 'Sign in', exact: true }).click();
    await heading('Devices').waitFor();
  });

  it('takes no answer that it has not asked for', async () => {
    await page.goto(`${service.url}/console/?code=stolen&state=stolen&iss=${encodeURIComponent(issuer)}`);
    await heading('Sign in').waitFor();
    expect(await page.getByRole('alert').count()).toBe(0);
    await button().click();
    await page.locator('[name=login]').waitFor();
    await page.goto(`${service.url}/console/?code=stolen&state=other&iss=${encodeURIComponent(issuer)}`);
    await page.getByRole('alert').getByText('The sign-in has failed: ').waitFor();
    expect(await storedItems()).toEqual([]);
  });
});
