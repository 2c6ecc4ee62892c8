import { useCallback, useEffect, useRef } from 'react';
import { useSession } from '../api/hooks.js';
import type { Alarm } from '../api/interface.js';
import { useLive } from '../api/live.js';
import { countOf } from '../api/resources.js';
import { announce } from '../lib/announcements.js';
import { createStore, useStore } from '../lib/store.js';
import { Toggle } from '../ui/button.js';

const item = 'device-platform.alarm-notices';
const feed = '/events/live/';
/** Alarms that are raised within this time are one notice. */
const gather_ms = 1000;
const isInBackground = true;

/** The switch of sound and notification for new alarms in this browser; off at first. */
const noticesStore = createStore(localStorage.getItem(item) === 'on');

/** Switches notices on and off; the browser asks for its permission only after the click. */
export function NoticeChoice() {
  const isOn = useStore(noticesStore);
  async function change(isWanted: boolean): Promise<void> {
    localStorage.setItem(item, isWanted ? 'on' : 'off');
    noticesStore.write(isWanted);
    if (!isWanted) return;
    playSound();
    const answer = 'Notification' in window ? await Notification.requestPermission() : 'denied';
    if (answer !== 'granted') announce('New alarms are only heard: the browser shows no notifications of this page.');
  }
  if (!useSession().can('GET', feed)) return null;
  return <Toggle label="Notify me of new alarms" isOn={isOn} onChange={(isWanted) => void change(isWanted)} />;
}

/** Plays a sound and shows a notification when alarms are raised, in all views, and while the tab is hidden. */
export function AlarmNotices() {
  const isOn = useStore(noticesStore);
  const isOffered = useSession().can('GET', feed);
  const raised = useRef<Alarm[]>([]);
  const timer = useRef<ReturnType<typeof setTimeout>>(undefined);
  const notify = useCallback(() => {
    const alarms = raised.current.splice(0);
    timer.current = undefined;
    playSound();
    showNotification(alarms);
  }, []);
  useEffect(() => () => clearTimeout(timer.current), []);
  useLive(
    feed,
    { type: 'alarm.raised' },
    isOn && isOffered,
    ({ data }) => {
      raised.current.push((JSON.parse(data) as { data: Alarm }).data);
      timer.current ??= setTimeout(notify, gather_ms);
    },
    isInBackground,
  );
  return null;
}

function showNotification(alarms: readonly Alarm[]): void {
  const [alarm, ...others] = alarms;
  if (alarm === undefined || !('Notification' in window) || Notification.permission !== 'granted') return;
  const { severity, device, rule, id } = alarm;
  const title = others.length === 0 ? `${severity}: ${rule}` : countOf({ noun: 'new alarm' }, alarms.length);
  const notification = new Notification(title, { body: device, tag: id });
  notification.onclick = () => window.focus();
}

/** Two short tones. */
function playSound(): void {
  const context = new AudioContext();
  const volume = context.createGain();
  volume.gain.value = 0.1;
  volume.connect(context.destination);
  const tones = [880, 660].map((frequency, index) => {
    const tone = context.createOscillator();
    tone.frequency.value = frequency;
    tone.connect(volume);
    tone.start(index * 0.18);
    tone.stop(index * 0.18 + 0.15);
    return tone;
  });
  tones.at(-1)?.addEventListener('ended', () => void context.close());
}
