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
    // what the console holds, if it was used in this tab
    const key = sessionStorage.getItem(item) ?? sessionStorage.getItem('device-platform.apikey');
    const tokens = sessionStorage.getItem('device-platform.tokens');
    if (key !== null) ui.preauthorizeApiKey('apikey', key);
    else if (tokens !== null) ui.preauthorizeApiKey('bearer', JSON.parse(tokens).bearer);
    const input = document.querySelector('.operation-filter-input');
    if (input !== null) input.placeholder = 'Filter operations';
  },
});
`;
