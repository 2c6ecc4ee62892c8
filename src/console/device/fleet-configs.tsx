import { Link } from '@tanstack/react-router';
import { useList } from '../api/queries.js';
import { useSession } from '../api/session.js';
import { formatNumber, labelOf } from '../lib/format.js';
import { Filters } from '../lists/filters.js';
import { readFilters } from '../lists/list-query.js';
import { type Search, useAddress } from '../ui/address.js';
import { Loaded } from '../ui/feedback.js';
import { Page } from '../ui/page.js';
import { type Column, Table } from '../ui/table.js';
import { ReadAt } from '../ui/value.js';
import { type ConfigCount, type ConfigRow, joinCounts } from './config-rows.js';

export const config_counts_path = '/devices/deviceconfigs/counts/';
const refetch_ms = 10_000;
/** Combinations of file, versions and state. */
const max_counts = 1000;
const statuses = ['applied', 'pending', 'refused', 'not_desired'] as const;

const keyOf = ({ name, desired }: ConfigRow) => JSON.stringify([name, desired]);

/** The versions of configuration files on the devices that match: who has them, is behind, or has refused them. */
export function FleetConfigs() {
  const parameters = useSession().filtersOf('/devices/');
  const [search, , replaceSearch] = useAddress();
  const filters = readFilters(search, parameters);
  const answer = useList<ConfigCount>(config_counts_path, { ...filters, max: max_counts }, { refetch_ms });
  return (
    <Page
      title="Configuration files"
      actions={
        <Link to="/$plural" params={{ plural: 'devices' }} search={filters} className="button">
          Open as a list
        </Link>
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
              />
            )}
            {result.length === max_counts && <p className="help">More versions are not shown: set filters.</p>}
            <ReadAt at_ms={answer.dataUpdatedAt} />
          </>
        )}
      </Loaded>
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
    { field: 'desired', label: 'Desired version', render: ({ desired }) => desired ?? <None /> },
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
  if (count === 0) return <None />;
  return (
    <Link to="/$plural" params={{ plural: 'devices' }} search={filters}>
      {formatNumber(count)}
      <span className="hidden">
        {count === 1 ? ' device' : ' devices'}: {of}
      </span>
    </Link>
  );
}

function None() {
  return <span className="muted">–</span>;
}
