import './map-preview.css';
import { lazy, Suspense, useEffect, useRef, useState } from 'react';
import { Loading } from '../ui/page.js';
import type { PlacedDevicesProps } from './placed-devices.js';

const PlacedDevices = lazy(async () => ({ default: (await import('./placed-devices.js')).PlacedDevices }));

const max_previewed_devices = 5000;

interface MapPreviewProps extends Pick<PlacedDevicesProps, 'query' | 'since' | 'isFitted'> {
  isSmall?: boolean;
  /** Default: true. */
  isReady?: boolean;
}

/** The devices that match a filter on a map; its library is loaded with the first one. */
export function MapOfDevices(props: PlacedDevicesProps) {
  return (
    <Suspense fallback={<Loading height="100%" />}>
      <PlacedDevices {...props} />
    </Suspense>
  );
}

/** A map beside other things on a page; its library and the devices are loaded when it is seen. */
export function MapPreview({ isSmall = false, isReady = true, ...shown }: MapPreviewProps) {
  const frame = useRef<HTMLDivElement>(null);
  const [isSeen, setSeen] = useState(false);
  useEffect(() => {
    if (frame.current === null) return;
    const observer = new IntersectionObserver((entries) => {
      if (entries.some(({ isIntersecting }) => isIntersecting)) setSeen(true);
    });
    observer.observe(frame.current);
    return () => observer.disconnect();
  }, []);
  return (
    <div className={isSmall ? 'map-preview small' : 'map-preview'} ref={frame}>
      {isSeen && isReady && <MapOfDevices {...shown} max_devices={max_previewed_devices} isPreview />}
    </div>
  );
}
