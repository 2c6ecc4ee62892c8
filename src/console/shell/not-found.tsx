import { Link } from '@tanstack/react-router';
import { Page } from '../ui/page.js';

export function NotFound() {
  return (
    <Page title="There is no such page">
      <p>
        <Link to="/">Overview</Link>
      </p>
    </Page>
  );
}
