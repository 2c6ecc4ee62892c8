import { createStore, useStore } from '../lib/store.js';
import { Toggle } from './button.js';

const item = 'device-platform.density';

/** Narrow table rows; the choice is kept in this browser. */
export const compactStore = createStore(localStorage.getItem(item) === 'compact');

export function DensityChoice() {
  return (
    <Toggle
      isOn={useStore(compactStore)}
      onChange={(isCompact) => {
        localStorage.setItem(item, isCompact ? 'compact' : 'comfortable');
        compactStore.write(isCompact);
      }}
    >
      Compact
    </Toggle>
  );
}
