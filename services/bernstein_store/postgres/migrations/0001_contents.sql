-- needs: 1
-- What the first services on PostgreSQL work with: origins, runs, files as pieces, marks.

create sequence contents;

-- Host and project. Its number is in every row below and decides who sees it.
create table origins (
    origin_id bigint generated always as identity primary key,
    name      text collate "C" not null unique
);

create table runs (
    origin_id bigint not null references origins,
    run_id    text collate "C" not null,
    primary key (origin_id, run_id)
);

-- A name as in the `.sdd` tree and what it holds now; other content in its place has another id.
create table files (
    origin_id  bigint not null references origins,
    name       text collate "C" not null,
    content_id bigint not null,
    size       bigint not null,
    -- Of the content that was put whole; what follows was appended and acknowledged.
    put_size   bigint not null,
    changed_at timestamptz not null default clock_timestamp(),
    opened_at  timestamptz not null default clock_timestamp(),
    -- Nothing is appended any more.
    ended      boolean not null default false,
    primary key (origin_id, name)
);

-- The bytes of a content from a position on: two writers at one position cannot both be.
create table pieces (
    origin_id  bigint not null,
    content_id bigint not null,
    position   bigint not null,
    data       bytea  not null,
    primary key (origin_id, content_id, position)
);
-- Evidence is mostly hashes; compressing it costs more than it saves.
alter table pieces alter column data set storage external;

-- Who asked for an append, and what was answered.
create table marks (
    origin_id  bigint not null,
    content_id bigint not null,
    request_id text collate "C" not null,
    size       bigint not null,
    answer     text   not null,
    made_at    timestamptz not null default clock_timestamp(),
    primary key (origin_id, content_id, request_id)
);

-- Each transaction names the one origin that it works for; without that name it sees nothing.
alter table runs   enable row level security;
alter table files  enable row level security;
alter table pieces enable row level security;
alter table marks  enable row level security;
alter table runs   force row level security;
alter table files  force row level security;
alter table pieces force row level security;
alter table marks  force row level security;
create policy own_origin on runs
    using (origin_id = nullif(current_setting('bernstein.origin_id', true), '')::bigint);
create policy own_origin on files
    using (origin_id = nullif(current_setting('bernstein.origin_id', true), '')::bigint);
create policy own_origin on pieces
    using (origin_id = nullif(current_setting('bernstein.origin_id', true), '')::bigint);
create policy own_origin on marks
    using (origin_id = nullif(current_setting('bernstein.origin_id', true), '')::bigint);
