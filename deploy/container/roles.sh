#!/bin/sh
# The user that services work as: it owns no table.
psql --quiet --username "$POSTGRES_USER" --dbname "$POSTGRES_DB" --set ON_ERROR_STOP=1 \
  --set password="$(cat /run/secrets/db-password)" <<'SQL'
create role bernstein login password :'password';
SQL
