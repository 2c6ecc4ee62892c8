import './hierarchy.css';
import { useSession } from '../api/hooks.js';
import { resourceTypes } from '../api/resources.js';
import { useAddress } from '../ui/address.js';
import { LinkButton } from '../ui/button.js';
import { Page } from '../ui/page.js';
import { Chosen } from './chosen.js';
import { Level } from './tree.js';

/** The tree from projects, or the object that the key is limited to, down to devices, and beside it the object that is chosen. The address holds what is open. */
export function Hierarchy() {
  const { can } = useSession();
  const [{ at }] = useAddress();
  const top = resourceTypes.find(({ list_path }) => can('GET', list_path));
  return (
    <Page
      title="Hierarchy"
      actions={
        can('POST', '/projects/') && (
          <LinkButton to="/$plural/new" params={{ plural: 'projects' }} label="New project" kind="primary" />
        )
      }
    >
      <div className="stack panes">
        <div className="card panel tree">{top && <Level type={top} query={{}} />}</div>
        {at === undefined ? (
          <p className="empty">Choose an object to see its devices, where they are, and what is below it.</p>
        ) : (
          <Chosen at={at} />
        )}
      </div>
    </Page>
  );
}
