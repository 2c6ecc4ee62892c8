import './search.css';
import { keepPreviousData, useQuery } from '@tanstack/react-query';
import { useNavigate } from '@tanstack/react-router';
import { type KeyboardEvent, useEffect, useId, useState } from 'react';
import { request } from '../api/client.js';
import { useSession } from '../api/hooks.js';
import { findType, type ListAnswer, pageTypes, type ResourceType, type StoredObject } from '../api/resources.js';
import { type Place, visitedStore } from '../api/visited.js';
import { useStore } from '../lib/store.js';
import { wait } from '../lib/wait.js';
import { Dialog } from '../ui/dialog.js';
import { Failure } from '../ui/page.js';

const pause_ms = 150;
const max_text = 100;
const max_of_type = 6;

/** A button, and Ctrl-K, that open the search for objects of all types. */
export function Search() {
  const [isOpen, setOpen] = useState(false);
  useEffect(() => {
    const open = (event: globalThis.KeyboardEvent) => {
      if (!(event.ctrlKey || event.metaKey) || event.key.toLowerCase() !== 'k') return;
      event.preventDefault();
      setOpen(true);
    };
    addEventListener('keydown', open);
    return () => removeEventListener('keydown', open);
  }, []);
  return (
    <>
      <button type="button" className="row search-button" aria-keyshortcuts="Control+K" onClick={() => setOpen(true)}>
        <svg aria-hidden="true" width="18" height="22" viewBox="0 0 18 18" fill="none" stroke="currentColor">
          <circle cx="7.5" cy="7.5" r="5" strokeWidth="1.8" />
          <path d="m11.5 11.5 4.5 4.5" strokeWidth="1.8" strokeLinecap="round" />
        </svg>
        <span className="label">Find</span>
        <span className="hidden">any object</span>
        <kbd>Ctrl K</kbd>
      </button>
      {isOpen && <SearchDialog onClose={() => setOpen(false)} />}
    </>
  );
}

/** Reads the objects of these types whose name, identifier or description contains the text. */
async function findPlaces(types: readonly ResourceType[], q: string, signal: AbortSignal): Promise<Place[]> {
  const query = { q, max: max_of_type, fields: 'id_developer,name' };
  const answers = await Promise.all(
    types.map(async ({ plural, list_path }) => {
      const { result } = await request<ListAnswer<StoredObject>>('GET', list_path, { query, signal });
      return result.map(({ id_developer: id, name }) => ({ plural, id, name }));
    }),
  );
  return answers.flat();
}

function SearchDialog({ onClose }: { onClose(): void }) {
  const [text, setText] = useState('');
  const [chosen, setChosen] = useState(0);
  const visited = useStore(visitedStore);
  const { can } = useSession();
  const types = pageTypes.filter(({ list_path }) => can('GET', list_path));
  const q = text.trim();
  const { data, error, isPlaceholderData } = useQuery({
    queryKey: ['search', q],
    async queryFn({ signal }) {
      // further typing cancels this
      await wait(pause_ms, signal);
      return findPlaces(types, q, signal);
    },
    enabled: q !== '',
    placeholderData: keepPreviousData,
  });
  const rankOf = ({ plural, id }: Place) => {
    const rank = visited.findIndex((place) => place.plural === plural && place.id === id);
    return rank < 0 ? visited.length : rank;
  };
  const found = data?.toSorted((left, right) => rankOf(left) - rankOf(right)) ?? [];
  const places = q === '' ? visited : found;
  const navigate = useNavigate();
  const id = useId();
  const selected = Math.min(chosen, places.length - 1);

  function open(place: Place | undefined): void {
    if (place === undefined) return;
    onClose();
    void navigate({ to: '/$plural/$id', params: { plural: place.plural, id: place.id } });
  }

  function press(event: KeyboardEvent): void {
    const steps: Readonly<Record<string, number>> = { ArrowDown: 1, ArrowUp: -1 };
    const step = steps[event.key];
    if (step !== undefined) setChosen(Math.max(0, Math.min(places.length - 1, selected + step)));
    else if (event.key === 'Enter') open(places[selected]);
    else return;
    event.preventDefault();
  }

  return (
    <Dialog title="Find any object" onClose={onClose}>
      <div className="stack">
        <input
          // the dialog gives the focus to what has this attribute, which React does not write
          ref={(input) => input?.setAttribute('autofocus', '')}
          className="search-box"
          type="search"
          role="combobox"
          aria-label="Name or identifier"
          placeholder="Name or identifier"
          aria-expanded={places.length > 0}
          aria-controls={`${id}-list`}
          aria-activedescendant={places.length > 0 ? `${id}-${selected}` : undefined}
          maxLength={max_text}
          value={text}
          onChange={({ target }) => {
            setText(target.value);
            setChosen(0);
          }}
          onKeyDown={press}
        />
        <Failure error={error} />
        <div className="found" role="listbox" id={`${id}-list`} aria-label="Objects">
          {places.map((place, index) => (
            // biome-ignore lint/a11y/useKeyWithClickEvents: the input has the keys
            <div
              key={`${place.plural} ${place.id}`}
              id={`${id}-${index}`}
              role="option"
              tabIndex={-1}
              aria-selected={index === selected}
              title={place.id}
              onClick={() => open(place)}
            >
              <span>{place.name}</span>
              <span className="muted">{findType(place.plural)?.noun}</span>
            </div>
          ))}
        </div>
        <p className="muted" role="status">
          {places.length > 0
            ? q === '' && 'Visited last.'
            : q === ''
              ? 'Searches projects, services, groups, assets, devices and models.'
              : data !== undefined && !isPlaceholderData && 'Nothing has this name or identifier.'}
        </p>
      </div>
    </Dialog>
  );
}
