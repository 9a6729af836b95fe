BEGIN TRANSACTION;
CREATE TABLE facts (
	"key" VARCHAR(64) NOT NULL, 
	text TEXT NOT NULL, 
	PRIMARY KEY ("key")
);
INSERT INTO "facts" VALUES('f9d3205d0efe42df9fccf942fde397293d0e6802a1f74c8681d744658ba078f6','{"isa":["avx2"],"threads":2}');
CREATE TABLE jobs (
	id VARCHAR(255) NOT NULL, 
	operator TEXT NOT NULL, 
	extents TEXT NOT NULL, 
	target TEXT NOT NULL, 
	options TEXT NOT NULL, 
	state VARCHAR(32) NOT NULL, 
	created VARCHAR(32) NOT NULL, 
	updated VARCHAR(32) NOT NULL, key VARCHAR(64) DEFAULT '' NOT NULL, 
	PRIMARY KEY (id)
);
INSERT INTO "jobs" VALUES('job-1','matmul','{"k":512,"m":512,"n":512}','cpu','{"trials":256}','done','2026-01-02T03:04:05.000000+00:00','2026-01-02T03:04:05.000000+00:00','a94ab76e690552efa6fc9431130ecc9bf9b74fdf959e89090e9c0772f89552ac');
CREATE TABLE leases (
	candidate VARCHAR(64) NOT NULL, 
	owner VARCHAR(255) NOT NULL, 
	began DOUBLE NOT NULL, 
	seconds DOUBLE NOT NULL, 
	PRIMARY KEY (candidate)
);
INSERT INTO "leases" VALUES('cccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccc','somebody',1.0,60.0);
CREATE TABLE tallies (
	name VARCHAR(32) NOT NULL, 
	total BIGINT NOT NULL, 
	PRIMARY KEY (name)
);
INSERT INTO "tallies" VALUES('facts',1);
INSERT INTO "tallies" VALUES('jobs',1);
INSERT INTO "tallies" VALUES('trials',2);
CREATE TABLE tilewright_schema (
	version INTEGER NOT NULL, 
	PRIMARY KEY (version)
);
INSERT INTO "tilewright_schema" VALUES(5);
CREATE TABLE trials (
	number INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, 
	"key" VARCHAR(64) NOT NULL, 
	candidate VARCHAR(64) NOT NULL, 
	workload TEXT NOT NULL, 
	operator TEXT NOT NULL, 
	extents TEXT NOT NULL, 
	target TEXT NOT NULL, 
	hardware TEXT NOT NULL, 
	facts VARCHAR(64) NOT NULL, 
	generator TEXT NOT NULL, 
	threads INTEGER NOT NULL, 
	schedule TEXT NOT NULL, 
	schedule_key VARCHAR(64) NOT NULL, 
	kernel_key TEXT NOT NULL, 
	status VARCHAR(32) NOT NULL, 
	seconds DOUBLE, 
	lower_quartile DOUBLE, 
	upper_quartile DOUBLE, 
	repeats INTEGER NOT NULL, 
	error DOUBLE, 
	detail TEXT NOT NULL, 
	compile_seconds DOUBLE, 
	clock_ghz DOUBLE, 
	notes TEXT NOT NULL, 
	created VARCHAR(32) NOT NULL, 
	job TEXT NOT NULL, 
	strategy TEXT NOT NULL, memory VARCHAR(16) DEFAULT 'huge' NOT NULL, 
	UNIQUE ("key"), 
	FOREIGN KEY(facts) REFERENCES facts ("key")
);
INSERT INTO "trials" VALUES(1,'33e26f5c843ddaeef667e0d615e71fa07a4771f0895a6b93ee97d8d40fee79d7','881585630f20344ed7dbcf90cd8bf068f54e2935acef7642355e9b86e542285f','aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa','matmul','{"k":512,"m":512,"n":512}','cpu','bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb','f9d3205d0efe42df9fccf942fde397293d0e6802a1f74c8681d744658ba078f6','cpu-1',2,'{"target":"cpu","values":{"tile.m.1":1}}','d67fb2ab95d4248edd43d00dfb35bf39f700f24a52d499df5a2f7ed96fabbff6','kernel-1','ok',0.001001,0.001,0.001501,5,1.0e-07,'',0.02,2.5,'{}','2026-01-02T03:04:05.000000+00:00','job-1','evolutionary','huge');
INSERT INTO "trials" VALUES(2,'f3518e52f9d2c66263501a2e9505f0d948757302bb84d2f6813c686e93acce3f','a91ea2fac732bb920f57c8ed7f7dfdddf28c5f137e6ca08e87f58c9353330e2f','aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa','matmul','{"k":512,"m":512,"n":512}','cpu','bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb','f9d3205d0efe42df9fccf942fde397293d0e6802a1f74c8681d744658ba078f6','cpu-1',2,'{"target":"cpu","values":{"tile.m.1":2}}','1d0f95eb086440d956c8c81930e8f5745dcf6e83f6c4f97bbbf83f157183a22e','kernel-2','crash',NULL,NULL,NULL,5,1.0e-07,'signal 11',0.02,2.5,'{}','2026-01-02T03:04:05.000000+00:00','job-1','evolutionary','huge');
CREATE INDEX ix_trials_candidate ON trials (candidate);
CREATE INDEX ix_trials_job ON trials (job);
CREATE INDEX ix_leases_owner ON leases (owner);
CREATE INDEX ix_trials_best ON trials (workload, target, hardware, generator, memory, status, strategy, seconds, candidate);
DELETE FROM "sqlite_sequence";
INSERT INTO "sqlite_sequence" VALUES('trials',2);
COMMIT;
