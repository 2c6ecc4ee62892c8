import { Link } from '@tanstack/react-router';
import { useState } from 'react';
import type { Query } from '../api/client.js';
import { useList, useSession } from '../api/hooks.js';
import { formatNumber, labelOf } from '../lib/format.js';
import { Filters } from '../lists/filters.js';
import { readFilters } from '../lists/list-query.js';
import { type Search, useAddress } from '../ui/address.js';
import { Button, LinkButton } from '../ui/button.js';
import { Loaded, Page } from '../ui/page.js';
import { type Column, Table } from '../ui/table.js';
import { ReadAt } from '../ui/value.js';
import {
  type ConfigCount,
  type ConfigRow,
  config_counts_path,
  joinCounts,
  many_configs_path,
  max_counts,
} from './config-rows.js';
import { type FileVersion, GiveFileDialog } from './give-file.js';

const refetch_ms = 10_000;
const statuses = ['applied', 'pending', 'refused', 'not_desired'] as const;

const keyOf = ({ name, desired }: ConfigRow) => JSON.stringify([name, desired]);

/** The versions of configuration files on the devices that match: who has them, is behind, or has refused them. */
export function FleetConfigs() {
  const parameters = useSession().filtersOf('/devices/');
  const [search, , replaceSearch] = useAddress();
  const filters = readFilters(search, parameters);
  const [gift, setGift] = useState<{ filters: Query; chosen?: FileVersion }>();
  const canGive = useSession().can('POST', many_configs_path);
  const hasFilter = Object.keys(filters).length > 0;
  /** Gives a version again, or another, to the devices that refused it. */
  const repeatButton = ({ name, desired: version, byStatus }: ConfigRow) => {
    if (version === null || !byStatus.has('refused')) return null;
    const refused = { ...filters, config: name, config_desired: version, config_status: 'refused' };
    return (
      <Button
        label="Repeat…"
        of={`${name} ${version}`}
        onClick={() => setGift({ filters: refused, chosen: { name, version } })}
      />
    );
  };
  const answer = useList<ConfigCount>(config_counts_path, { ...filters, max: max_counts }, { refetch_ms });
  return (
    <Page
      title="Configuration files"
      actions={
        <>
          <LinkButton to="/$plural" params={{ plural: 'devices' }} search={filters} label="Open as a list" />
          {canGive && (
            <Button
              label="Give a file…"
              disabled={!hasFilter}
              title={hasFilter ? undefined : 'Set a filter first'}
              onClick={() => setGift({ filters })}
            />
          )}
        </>
      }
    >
      <Filters parameters={parameters} active={filters} onChange={replaceSearch} />
      <Loaded of={answer} height="24rem">
        {({ result }) => (
          <>
            {result.length === 0 ? (
              <p className="muted">None of these devices shall have a file, or has reported one.</p>
            ) : (
              <Table
                caption="Devices by version"
                columns={columnsOf(filters)}
                entries={joinCounts(result)}
                keyOf={keyOf}
                rowAction={canGive ? repeatButton : undefined}
              />
            )}
            {result.length === max_counts && <p className="help">More versions are not shown: set filters.</p>}
            <ReadAt at_ms={answer.dataUpdatedAt} />
          </>
        )}
      </Loaded>
      {gift && <GiveFileDialog {...gift} onClose={() => setGift(undefined)} />}
    </Page>
  );
}

function columnsOf(filters: Search): Column<ConfigRow>[] {
  const filtersOf = ({ name, desired }: ConfigRow) => ({
    ...filters,
    config: name,
    ...(desired !== null && { config_desired: desired }),
  });
  return [
    { field: 'name', label: 'File', render: ({ name }) => name },
    { field: 'desired', label: 'Desired version', render: ({ desired }) => desired ?? '–' },
    ...statuses.map((status) => ({
      field: status,
      label: labelOf(status),
      render: (row: ConfigRow) => (
        <DeviceCount
          count={row.byStatus.get(status)}
          of={`${row.name} ${row.desired ?? ''} ${labelOf(status).toLowerCase()}`}
          filters={{ ...filtersOf(row), config_status: status }}
        />
      ),
    })),
    {
      field: 'reported',
      label: 'Reported versions',
      render: (row) => (
        <span className="row">
          {[...row.byReported].map(([version, count]) =>
            version === null || row.desired === null ? (
              <span key={version}>
                {version ?? 'none'}: {formatNumber(count)}
              </span>
            ) : (
              <span key={version}>
                {version}:{' '}
                <DeviceCount
                  count={count}
                  of={`${row.name} ${row.desired}, reported ${version}`}
                  filters={{ ...filtersOf(row), config_reported: version }}
                />
              </span>
            ),
          )}
        </span>
      ),
    },
  ];
}

/** A number that leads to its devices. */
function DeviceCount({ count = 0, of, filters }: { count: number | undefined; of: string; filters: Search }) {
  if (count === 0) return '–';
  return (
    <Link to="/$plural" params={{ plural: 'devices' }} search={filters}>
      {formatNumber(count)}
      <span className="hidden">
        {count === 1 ? ' device' : ' devices'}: {of}
      </span>
    </Link>
  );
}
