BEGIN TRANSACTION;
CREATE TABLE dream_banks (
	bank_id INTEGER NOT NULL, 
	collection VARCHAR(512) NOT NULL, 
	name TEXT NOT NULL, 
	version INTEGER NOT NULL, 
	created_at FLOAT NOT NULL, 
	PRIMARY KEY (bank_id), 
	UNIQUE (collection)
);
INSERT INTO "dream_banks" VALUES(1,'COLLECTION','old',8,1.79605262441404056553e+09);
CREATE TABLE dream_changes (
	run_id VARCHAR(64) NOT NULL, 
	memory_id TEXT NOT NULL, 
	field VARCHAR(16) NOT NULL, 
	"before" FLOAT NOT NULL, 
	"after" FLOAT NOT NULL, 
	PRIMARY KEY (run_id, memory_id, field)
)
 WITHOUT ROWID

;
INSERT INTO "dream_changes" VALUES('1a22d14247e-f3b7ac','m0','deleted',1.0,0.0);
INSERT INTO "dream_changes" VALUES('1a22d14247e-f3b7ac','m1','deleted',1.0,0.0);
INSERT INTO "dream_changes" VALUES('1a22d14247e-f3b7ac','m2','deleted',1.0,0.0);
INSERT INTO "dream_changes" VALUES('1a22d14247e-f3b7ac','m3','deleted',1.0,0.0);
INSERT INTO "dream_changes" VALUES('1a22d14247e-f3b7ac','m4','deleted',1.0,0.0);
INSERT INTO "dream_changes" VALUES('1a22d14247e-f3b7ac','m5','deleted',1.0,0.0);
INSERT INTO "dream_changes" VALUES('1a22d14247e-f3b7ac','m6','deleted',1.0,0.0);
INSERT INTO "dream_changes" VALUES('1a22d14247e-f3b7ac','m7','deleted',1.0,0.0);
INSERT INTO "dream_changes" VALUES('1a22d142495-87a2f3','m0','successes',0.0,1.0);
INSERT INTO "dream_changes" VALUES('1a22d142495-87a2f3','m1','consolidation',1.0,0.892590086600393);
INSERT INTO "dream_changes" VALUES('1a22d142495-87a2f3','m1','successes',0.0,1.0);
INSERT INTO "dream_changes" VALUES('1a22d1424c2-889240','m0','suspicion',0.0,1.4740020383394736303e-01);
INSERT INTO "dream_changes" VALUES('1a22d1424c2-889240','m0','weight',1.0,5.54548607856985786845e-01);
INSERT INTO "dream_changes" VALUES('1a22d1424c2-889240','m1','suspicion',0.0,1.96181448701555100067e-01);
INSERT INTO "dream_changes" VALUES('1a22d1424c2-889240','m1','weight',1.0,4.37057829291860433507e-01);
INSERT INTO "dream_changes" VALUES('1a22d1424c2-889240','m2','suspicion',0.0,1.47470171974015379356e-01);
INSERT INTO "dream_changes" VALUES('1a22d1424c2-889240','m2','weight',1.0,7.22940828598352513978e-01);
INSERT INTO "dream_changes" VALUES('1a22d1424c2-889240','m3','suspicion',0.0,4.77085604337268154306e-01);
INSERT INTO "dream_changes" VALUES('1a22d1424c2-889240','m3','weight',1.0,8.62471266398599500924e-02);
INSERT INTO "dream_changes" VALUES('1a22d1424c2-889240','m5','suspicion',0.0,1.02126710489764405132e-01);
INSERT INTO "dream_changes" VALUES('1a22d1424c2-889240','m5','weight',1.0,7.76699555399366303731e-01);
INSERT INTO "dream_changes" VALUES('1a22d1424c2-889240','m7','suspicion',0.0,1.42588457943965907226e-01);
INSERT INTO "dream_changes" VALUES('1a22d1424c2-889240','m7','weight',1.0,7.27837111045298135181e-01);
INSERT INTO "dream_changes" VALUES('1a22d1424e5-eb9906','m6','deleted',0.0,1.0);
INSERT INTO "dream_changes" VALUES('1a22d1424fc-2dd8fd','m2','weight',7.22940828598352513978e-01,0.4);
INSERT INTO "dream_changes" VALUES('1a22d142544-fcaf83','m4','weight',1.0,0.3);
INSERT INTO "dream_changes" VALUES('1a22d142556-db6afa','m4','weight',0.3,1.0);
CREATE TABLE dream_contents (
	run_id VARCHAR(64) NOT NULL, 
	memory_id TEXT NOT NULL, 
	"before" TEXT, 
	before_embedding BLOB, 
	"after" TEXT, 
	after_embedding BLOB, 
	PRIMARY KEY (run_id, memory_id)
);
INSERT INTO "dream_contents" VALUES('1a22d142512-7cd364','m3','{"text": "memory 3", "metadata": {}}',X'0000000000000000000000000000803F','{"text": "rewritten", "metadata": {}}',X'0000803F0000803F0000803F0000803F');
CREATE TABLE dream_locks (
	bank_id INTEGER NOT NULL, 
	scope TEXT NOT NULL, 
	token VARCHAR(64) NOT NULL, 
	host TEXT NOT NULL, 
	pid INTEGER NOT NULL, 
	purpose TEXT NOT NULL, 
	acquired_at FLOAT NOT NULL, 
	heartbeat_at FLOAT NOT NULL, 
	PRIMARY KEY (bank_id, scope)
);
CREATE TABLE dream_memories (
	bank_id INTEGER NOT NULL, 
	memory_id TEXT NOT NULL, 
	weight FLOAT NOT NULL, 
	suspicion FLOAT NOT NULL, 
	consolidation FLOAT NOT NULL, 
	deleted FLOAT NOT NULL, 
	successes FLOAT NOT NULL, 
	retrievals INTEGER NOT NULL, 
	last_access FLOAT, 
	changed_version INTEGER NOT NULL, 
	PRIMARY KEY (bank_id, memory_id)
)
 WITHOUT ROWID

;
INSERT INTO "dream_memories" VALUES(1,'m0',5.54548607856985786845e-01,1.4740020383394736303e-01,1.0,0.0,1.0,0,NULL,3);
INSERT INTO "dream_memories" VALUES(1,'m1',4.37057829291860433507e-01,1.96181448701555100067e-01,0.892590086600393,0.0,1.0,0,NULL,3);
INSERT INTO "dream_memories" VALUES(1,'m2',0.4,1.47470171974015379356e-01,1.0,0.0,0.0,0,NULL,5);
INSERT INTO "dream_memories" VALUES(1,'m3',8.62471266398599500924e-02,4.77085604337268154306e-01,1.0,0.0,0.0,0,NULL,3);
INSERT INTO "dream_memories" VALUES(1,'m4',1.0,0.0,1.0,0.0,0.0,0,NULL,8);
INSERT INTO "dream_memories" VALUES(1,'m5',7.76699555399366303731e-01,1.02126710489764405132e-01,1.0,0.0,0.0,0,NULL,3);
INSERT INTO "dream_memories" VALUES(1,'m6',1.0,0.0,1.0,1.0,0.0,0,NULL,4);
INSERT INTO "dream_memories" VALUES(1,'m7',7.27837111045298135181e-01,1.42588457943965907226e-01,1.0,0.0,0.0,0,NULL,3);
CREATE TABLE dream_meta (
	"key" VARCHAR(64) NOT NULL, 
	value TEXT, 
	PRIMARY KEY ("key")
);
INSERT INTO "dream_meta" VALUES('schema_version','1');
CREATE TABLE dream_runs (
	run_id VARCHAR(64) NOT NULL, 
	bank_id INTEGER NOT NULL, 
	scope TEXT NOT NULL, 
	kind VARCHAR(32) NOT NULL, 
	status VARCHAR(16) NOT NULL, 
	target VARCHAR(64), 
	created_at FLOAT NOT NULL, 
	version INTEGER NOT NULL, 
	changes INTEGER NOT NULL, 
	config TEXT NOT NULL, 
	report TEXT NOT NULL, 
	PRIMARY KEY (run_id)
);
INSERT INTO "dream_runs" VALUES('1a22d14247e-f3b7ac',1,'','add','applied',NULL,1.79605262451314830782e+09,1,8,'{}','{"added": 8, "asked": 8}');
INSERT INTO "dream_runs" VALUES('1a22d142495-87a2f3',1,'','feedback','applied',NULL,1.79605262453590059281e+09,2,3,'{}','{"memories": 2, "success": 1.0}');
INSERT INTO "dream_runs" VALUES('1a22d1424c2-889240',1,'','sweep','applied',NULL,1.79605262458542728424e+09,3,12,'{"alpha_rec": 0.6, "decay_law": "additive", "eta": 0.3, "gamma": 0.5, "iterations": 2, "k": 10.0, "kappa": 2.0, "lambda0": 0.4, "noise": "isotropic", "noise_ratio": 0.5, "probe": "auto", "retrieval_form": "logistic", "seed": 0, "sigma": null, "suspicion_gain": 0.25, "tau": 0.05, "terms": ["geometric", "retrieval", "coherence"], "theta_c": 0.5}','{"config": {"alpha_rec": 0.6, "decay_law": "additive", "eta": 0.3, "gamma": 0.5, "iterations": 2, "k": 10.0, "kappa": 2.0, "lambda0": 0.4, "noise": "isotropic", "noise_ratio": 0.5, "probe": "auto", "retrieval_form": "logistic", "seed": 0, "sigma": null, "suspicion_gain": 0.25, "tau": 0.05, "terms": ["geometric", "retrieval", "coherence"], "theta_c": 0.5}, "dry_run": false, "forgotten": 1, "lowered": 6, "memories": 8, "raised": 0, "run_id": "1a22d1424c2-889240", "seconds": 0.043742613001086283, "skipped": 0, "suspects": [{"abnormal": 2, "activation": 1.2182619995611612, "id": "m3", "suspicion": 0.47708560433726815, "weight": 0.08624712663985995, "weight_before": 1.0}, {"abnormal": 1, "activation": 1.819036848566152, "id": "m1", "suspicion": 0.1961814487015551, "weight": 0.43705782929186043, "weight_before": 1.0}, {"abnormal": 1, "activation": 1.8288397819906954, "id": "m0", "suspicion": 0.14740020383394736, "weight": 0.5545486078569858, "weight_before": 1.0}, {"abnormal": 1, "activation": 1.3598502021226775, "id": "m2", "suspicion": 0.14747017197401538, "weight": 0.7229408285983525, "weight_before": 1.0}, {"abnormal": 1, "activation": 1.9185102136882168, "id": "m7", "suspicion": 0.1425884579439659, "weight": 0.7278371110452981, "weight_before": 1.0}, {"abnormal": 1, "activation": 1.4719548415454442, "id": "m5", "suspicion": 0.1021267104897644, "weight": 0.7766995553993663, "weight_before": 1.0}], "trace": [{"abnormal": 4, "mean": 1.5850041203473886, "mean_weight": 0.7062704510993819, "std": 0.45624552892470505, "threshold": 1.448130461669977}, {"abnormal": 3, "mean": 1.7471696194047035, "mean_weight": 0.6631663823539654, "std": 0.4745283769009965, "threshold": 1.6048111063344046}]}');
INSERT INTO "dream_runs" VALUES('1a22d1424e5-eb9906',1,'','delete','applied',NULL,1.7960526246153421402e+09,4,1,'{}','{}');
INSERT INTO "dream_runs" VALUES('1a22d1424fc-2dd8fd',1,'','reweight','applied',NULL,1.7960526246386582851e+09,5,1,'{}','{}');
INSERT INTO "dream_runs" VALUES('1a22d142512-7cd364',1,'','update','applied',NULL,1.79605262465944480899e+09,6,1,'{}','{"memories": ["m3"]}');
INSERT INTO "dream_runs" VALUES('1a22d142544-fcaf83',1,'','reweight','undone',NULL,1.7960526247118566036e+09,7,1,'{}','{}');
INSERT INTO "dream_runs" VALUES('1a22d142556-db6afa',1,'','undo','applied','1a22d142544-fcaf83',1.79605262474800705906e+09,8,1,'{}','{"kind": "reweight", "undone": "1a22d142544-fcaf83"}');
CREATE INDEX dream_memories_changed ON dream_memories (bank_id, changed_version);
CREATE INDEX dream_runs_bank ON dream_runs (bank_id, created_at);
COMMIT;
