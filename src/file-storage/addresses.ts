import ipaddr from 'ipaddr.js';

type Address = ipaddr.IPv4 | ipaddr.IPv6;
type Net = [Address, number];

/** Link-local, and where clouds tell their machines about themselves: never reached, whoever allows it (contract 10). */
const never = [
  '169.254.0.0/16',
  'fe80::/10',
  '100.100.100.200/32',
  '168.63.129.16/32',
  '192.0.0.192/32',
  'fd00:ec2::254/128',
  'fd20:ce::254/128',
].map(netOf);

/** IPv6 addresses that stand for an IPv4 address elsewhere. */
const transitional = new Set(['rfc6052', 'rfc6145', '6to4', 'teredo']);
const globalUnicast = netOf('2000::/3');

/** Whether addresses may be connected to: public ones and those of `nets`, a CIDR list. */
export function addressRule(nets: readonly string[]): (address: string) => boolean {
  const allowed = nets.map(netOf);
  return (text) => {
    if (!ipaddr.isValid(text)) return false;
    // IPv4-mapped addresses become what they are mapped to
    const address = ipaddr.process(text);
    if (isIn(never, address) || transitional.has(address.range())) return false;
    return isIn(allowed, address) || isPublic(address);
  };
}

function netOf(cidr: string): Net {
  return ipaddr.parseCIDR(cidr);
}

function isIn(nets: readonly Net[], address: Address): boolean {
  return nets.some(([net, bits]) => net.kind() === address.kind() && address.match(net, bits));
}

function isPublic(address: Address): boolean {
  return address.range() === 'unicast' && (address.kind() === 'ipv4' || isIn([globalUnicast], address));
}
