import './ui/base.css';
import { QueryClientProvider } from '@tanstack/react-query';
import { RouterProvider } from '@tanstack/react-router';
import { StrictMode } from 'react';
import { createRoot } from 'react-dom/client';
import { createQueryClient } from './api/hooks.js';
import { pageSettings } from './api/page-settings.js';
import { finishSignIn } from './api/sign-in.js';
import { createConsoleRouter } from './router.js';

const mount = `${pageSettings.prefix}/console/`;
// the service also answers `/` with this page
if (!location.pathname.startsWith(mount)) history.replaceState(null, '', mount + location.search);

/** Not at the top level: what `finishSignIn` loads waits for the file of this module. */
async function start(): Promise<void> {
  await finishSignIn();
  createRoot(document.getElementById('root') as HTMLElement).render(
    <StrictMode>
      <QueryClientProvider client={createQueryClient()}>
        <RouterProvider router={createConsoleRouter()} />
      </QueryClientProvider>
    </StrictMode>,
  );
}

void start();
