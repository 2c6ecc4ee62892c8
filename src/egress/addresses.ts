import ipaddr from 'ipaddr.js';

type Address = ipaddr.IPv4 | ipaddr.IPv6;
type Net = [Address, number];

/** Link-local networks and the metadata services of clouds: blocked even where FILESTORE_ALLOW_NETS lists them. */
const blockedNets = [
  '169.254.0.0/16',
  'fe80::/10',
  '100.100.100.200/32',
  '168.63.129.16/32',
  '192.0.0.192/32',
  'fd00:ec2::254/128',
  'fd20:ce::254/128',
].map(parseNet);

/** Kinds of IPv6 addresses that embed the IPv4 address they lead to. */
const transitionalRanges = new Set(['rfc6052', 'rfc6145', '6to4', 'teredo']);
const globalUnicast = parseNet('2000::/3');

/** Returns the test for addresses that may be connected to: public ones and those in `nets`, a CIDR list (reference/file-storage.md#allowed-addresses). */
export function createAddressFilter(nets: readonly string[]): (address: string) => boolean {
  const allowedNets = nets.map(parseNet);
  return (text) => {
    if (!ipaddr.isValid(text)) return false;
    // turns an IPv4-mapped IPv6 address into the IPv4 address
    const address = ipaddr.process(text);
    if (isInAny(blockedNets, address) || transitionalRanges.has(address.range())) return false;
    return isInAny(allowedNets, address) || isPublic(address);
  };
}

/** Reports whether the host of a URL, with or without brackets, is this machine. */
export function isThisMachine(hostname: string): boolean {
  return /^(?:localhost|127(?:\.\d+){3}|\[?::1\]?)$/.test(hostname);
}

/** Reports whether an address is https, or leads to this machine. */
export function isSecureAddress(text: string): boolean {
  if (!URL.canParse(text)) return false;
  const { protocol, hostname } = new URL(text);
  return protocol === 'https:' || (protocol === 'http:' && isThisMachine(hostname));
}

/** Returns the test for addresses in `nets`, a CIDR list; an IPv4-mapped IPv6 address counts as the IPv4 address. */
export function createNetworkFilter(nets: readonly string[]): (address: string) => boolean {
  const parsedNets = nets.map(parseNet);
  return (text) => parsedNets.length > 0 && ipaddr.isValid(text) && isInAny(parsedNets, ipaddr.process(text));
}

function parseNet(cidr: string): Net {
  return ipaddr.parseCIDR(cidr);
}

function isInAny(nets: readonly Net[], address: Address): boolean {
  return nets.some(([net, bits]) => net.kind() === address.kind() && address.match(net, bits));
}

function isPublic(address: Address): boolean {
  return address.range() === 'unicast' && (address.kind() === 'ipv4' || isInAny([globalUnicast], address));
}
