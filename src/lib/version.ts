/** Version of the service and its interface; a test compares it with package.json. */
export const version = '0.3.0';

/** Version of the stored data: the number of migrations, so that it grows with each of them. */
export const data_version = 15;
