import type { mongo } from 'mongoose';
import { checksumOf } from '../telemetry/checksum.js';
