import { Link } from '../address.js';
import { Page } from '../components/page.js';

/** An address that no view has. */
export function NotFound() {
  return (
    <Page title="There is no such page">
      <p>
        <Link to="/">Overview</Link>
      </p>
    </Page>
  );
}
