/** The reference page: Swagger UI with the scripts of the service only. */
export const page = `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>Device platform management interface</title>
<link rel="stylesheet" href="swagger-ui.css">
<link rel="icon" href="favicon-32x32.png">
</head>
<body>
<div class="swagger-ui">
<header class="wrapper">
<p><a href="../console/">Console</a></p>
<h1>Device platform management interface</h1>
<section aria-labelledby="first">
<h2 id="first">Five requests to begin with</h2>
<p>They read, with the key of this tab: that of the console, or one that was given to <b>Authorize</b> below.</p>
<ol id="requests"></ol>
<pre id="answer" role="status" tabindex="0" hidden></pre>
</section>
</header>
</div>
<div id="reference"></div>
<script src="swagger-ui-bundle.js"></script>
<script src="start.js"></script>
</body>
</html>
`;

/**
 * Starts Swagger UI. No validator badge, which would be an external request. `persistAuthorization` would keep the key in
 * `localStorage`, where it outlives the tab; the filter that comes with it only looks at tags.
 */
export const startScript = `const item = 'apikey';

const firstRequests = [
  ['Who am I?', '/self/'],
  ['Three devices', '/devices/?max=3'],
  ['What they sent last', '/devices/?max=3&fields=id_developer,latest'],
  ['Devices by status', '/devices/counts/?by=status'],
  ['What happened last', '/events/?max=3'],
];

// also what the console holds, if it was used in this tab
function readCredential() {
  const key = sessionStorage.getItem(item) ?? sessionStorage.getItem('device-platform.apikey');
  const tokens = sessionStorage.getItem('device-platform.tokens');
  return key === null && tokens !== null ? { bearer: JSON.parse(tokens).bearer } : { apikey: key };
}

function showFirstRequests(base, keyHeader) {
  const answer = document.getElementById('answer');
  for (const [title, path] of firstRequests) {
    const [entry, button, command] = ['li', 'button', 'code'].map((name) => document.createElement(name));
    button.textContent = title;
    button.className = 'btn';
    button.addEventListener('click', async () => {
      answer.hidden = false;
      const { apikey, bearer } = readCredential();
      const credential = bearer ? { Authorization: 'Bearer ' + bearer } : { [keyHeader]: apikey ?? '' };
      const response = await fetch(base + path, { headers: { Accept: 'application/json', ...credential } });
      answer.textContent = response.status + ' ' + JSON.stringify(await response.json(), undefined, 2);
    });
    command.textContent = 'curl -H "' + keyHeader + ': $KEY" "' + base + path + '"';
    entry.append(button, ' ', command);
    document.getElementById('requests').append(entry);
  }
}

const keepKeyForTab = () => ({
  statePlugins: {
    auth: {
      wrapActions: {
        authorize: (authorize) => (given) => {
          if (given.apikey !== undefined) sessionStorage.setItem(item, given.apikey.value);
          return authorize(given);
        },
        logout: (logout) => (names) => {
          sessionStorage.removeItem(item);
          return logout(names);
        },
      },
    },
  },
});

const filterOperations = () => ({
  fn: {
    opsFilter(tags, phrase) {
      const wanted = phrase.toLowerCase();
      const isWanted = (one) =>
        [
          one.get('method'),
          one.get('path'),
          one.getIn(['operation', 'operationId']),
          one.getIn(['operation', 'summary']),
        ].some((text) => String(text).toLowerCase().includes(wanted));
      return tags
        .map((tag, name) =>
          name.includes(wanted) ? tag : tag.update('operations', (all) => all.filter(isWanted)),
        )
        .filter((tag) => tag.get('operations').size > 0);
    },
  },
});

// the operations come first
const foldDescription = ({ React }) => ({
  wrapComponents: {
    InfoContainer: (Info) => (props) =>
      React.createElement(
        'details',
        { className: 'wrapper' },
        React.createElement('summary', null, 'About this interface'),
        React.createElement(Info, props),
      ),
  },
});

// there is none with CONSOLE=off
fetch('../console/', { method: 'HEAD' }).then(({ ok }) => {
  document.querySelector('header a').hidden = !ok;
});

// as the console does
const darkScheme = matchMedia('(prefers-color-scheme: dark)');
function followTheme() {
  const theme = localStorage.getItem('device-platform.theme');
  const isDark = theme === 'dark' || (theme !== 'light' && darkScheme.matches);
  document.documentElement.classList.toggle('dark-mode', isDark);
}
darkScheme.addEventListener('change', followTheme);
followTheme();

const ui = SwaggerUIBundle({
  url: '../openapi.json',
  dom_id: '#reference',
  validatorUrl: null,
  deepLinking: true,
  defaultModelsExpandDepth: 0,
  filter: true,
  plugins: [keepKeyForTab, filterOperations, foldDescription],
  onComplete() {
    const description = ui.specSelectors.specJson();
    const base = new URL(description.getIn(['servers', 0, 'url']), location.href).href.replace(/\\/$/, '');
    showFirstRequests(base, description.getIn(['components', 'securitySchemes', 'apikey', 'name']));
    for (const [scheme, value] of Object.entries(readCredential()))
      if (value !== null) ui.preauthorizeApiKey(scheme, value);
    const input = document.querySelector('.operation-filter-input');
    if (input !== null) input.placeholder = 'Filter operations';
  },
});
`;
