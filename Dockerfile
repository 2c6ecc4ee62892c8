# The service without a database: it needs one at MONGODB_URI (compose.yaml includes one).

FROM node:24-slim AS build
WORKDIR /app
COPY package.json package-lock.json ./
RUN npm ci --ignore-scripts --no-audit --no-fund
COPY tsconfig.json tsconfig.build.json ./
COPY scripts/run.js ./scripts/
COPY src ./src
COPY demo ./demo
RUN npm run build

FROM node:24-slim
ENV NODE_ENV=production HOST=0.0.0.0 PORT=3000
WORKDIR /app
COPY package.json package-lock.json ./
RUN npm ci --omit=dev --ignore-scripts --no-audit --no-fund && npm cache clean --force
COPY --from=build /app/dist/src ./dist/src
COPY --from=build /app/dist/demo ./dist/demo
# the only writable folder of an otherwise read-only container
RUN install -d -o node -g node -m 700 /backups
VOLUME /backups
# by number: Kubernetes checks that it is not root
USER 1000:1000
EXPOSE 3000 1883 8883
HEALTHCHECK --interval=10s --timeout=6s --start-period=10s --retries=3 \
  CMD ["node", "-e", "const s = process.env.TLS_CERT_FILE ? 's' : ''; require('node:http' + s).get('http' + s + '://127.0.0.1:' + process.env.PORT + '/healthz', { rejectUnauthorized: false }, ({ statusCode }) => process.exit(statusCode === 200 ? 0 : 1)).on('error', () => process.exit(1))"]
CMD ["node", "--max-semi-space-size=32", "dist/src/main.js"]
