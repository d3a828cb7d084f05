-- The role of workers, which sees the table of jobs and nothing else: psql --file deploy/worker.sql, with the password in
-- WORKER_PASSWORD, after each migration. It may be repeated.
\getenv password WORKER_PASSWORD
SELECT 'CREATE ROLE curator_worker LOGIN' WHERE NOT EXISTS (SELECT FROM pg_roles WHERE rolname = 'curator_worker') \gexec
ALTER ROLE curator_worker PASSWORD :'password';
GRANT SELECT, UPDATE (status, worker, beat, claims, progress, "end", result) ON jobs TO curator_worker;
