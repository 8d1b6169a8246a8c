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
INSERT INTO "dream_banks" VALUES(1,'COLLECTION','old',12,1.79605263399478435517e+09);
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
INSERT INTO "dream_changes" VALUES('1a22d1449d1-a7b42c','m0','deleted',1.0,0.0);
INSERT INTO "dream_changes" VALUES('1a22d1449d1-a7b42c','m1','deleted',1.0,0.0);
INSERT INTO "dream_changes" VALUES('1a22d1449d1-a7b42c','m2','deleted',1.0,0.0);
INSERT INTO "dream_changes" VALUES('1a22d1449d1-a7b42c','m3','deleted',1.0,0.0);
INSERT INTO "dream_changes" VALUES('1a22d1449d1-a7b42c','m4','deleted',1.0,0.0);
INSERT INTO "dream_changes" VALUES('1a22d1449d1-a7b42c','m5','deleted',1.0,0.0);
INSERT INTO "dream_changes" VALUES('1a22d1449d1-a7b42c','m6','deleted',1.0,0.0);
INSERT INTO "dream_changes" VALUES('1a22d1449d1-a7b42c','m7','deleted',1.0,0.0);
INSERT INTO "dream_changes" VALUES('1a22d1449d7-052ca6','m0','successes',0.0,1.0);
INSERT INTO "dream_changes" VALUES('1a22d1449d7-052ca6','m1','consolidation',1.0,0.892590086600393);
INSERT INTO "dream_changes" VALUES('1a22d1449d7-052ca6','m1','successes',0.0,1.0);
INSERT INTO "dream_changes" VALUES('1a22d144a0a-35d370','m0','suspicion',0.0,1.4740020383394736303e-01);
INSERT INTO "dream_changes" VALUES('1a22d144a0a-35d370','m0','weight',1.0,5.54548607856985786845e-01);
INSERT INTO "dream_changes" VALUES('1a22d144a0a-35d370','m1','suspicion',0.0,1.96181448701555100067e-01);
INSERT INTO "dream_changes" VALUES('1a22d144a0a-35d370','m1','weight',1.0,4.37057829291860433507e-01);
INSERT INTO "dream_changes" VALUES('1a22d144a0a-35d370','m2','suspicion',0.0,1.47470171974015379356e-01);
INSERT INTO "dream_changes" VALUES('1a22d144a0a-35d370','m2','weight',1.0,7.22940828598352513978e-01);
INSERT INTO "dream_changes" VALUES('1a22d144a0a-35d370','m3','suspicion',0.0,4.77085604337268154306e-01);
INSERT INTO "dream_changes" VALUES('1a22d144a0a-35d370','m3','weight',1.0,8.62471266398599500924e-02);
INSERT INTO "dream_changes" VALUES('1a22d144a0a-35d370','m5','suspicion',0.0,1.02126710489764405132e-01);
INSERT INTO "dream_changes" VALUES('1a22d144a0a-35d370','m5','weight',1.0,7.76699555399366303731e-01);
INSERT INTO "dream_changes" VALUES('1a22d144a0a-35d370','m7','suspicion',0.0,1.42588457943965907226e-01);
INSERT INTO "dream_changes" VALUES('1a22d144a0a-35d370','m7','weight',1.0,7.27837111045298135181e-01);
INSERT INTO "dream_changes" VALUES('1a22d144a24-1d6755','m6','deleted',0.0,1.0);
INSERT INTO "dream_changes" VALUES('1a22d144a2c-d3c2bb','m2','weight',7.22940828598352513978e-01,0.4);
INSERT INTO "dream_changes" VALUES('1a22d144a67-b62b1a','m4','weight',1.0,0.3);
INSERT INTO "dream_changes" VALUES('1a22d144a8d-605eb1','m4','weight',0.3,1.0);
INSERT INTO "dream_changes" VALUES('1a22d144ad9-b6b02c','dream-derived/00000000000000000000000000000001','deleted',1.0,0.0);
INSERT INTO "dream_changes" VALUES('1a22d144ad9-b6b02c','m5','weight',7.76699555399366303731e-01,0.6);
INSERT INTO "dream_changes" VALUES('1a22daf8ace-e94042','m0','suspicion',1.4740020383394736303e-01,0.0);
INSERT INTO "dream_changes" VALUES('1a22daf8ace-e94042','m0','weight',5.54548607856985786845e-01,1.0);
INSERT INTO "dream_changes" VALUES('1a22daf8ace-e94042','m7','suspicion',1.42588457943965907226e-01,0.0);
INSERT INTO "dream_changes" VALUES('1a22daf8ace-e94042','m7','weight',7.27837111045298135181e-01,1.0);
CREATE TABLE dream_contents (
	run_id VARCHAR(64) NOT NULL, 
	memory_id TEXT NOT NULL, 
	"before" TEXT, 
	before_embedding BLOB, 
	"after" TEXT, 
	after_embedding BLOB, 
	PRIMARY KEY (run_id, memory_id)
);
INSERT INTO "dream_contents" VALUES('1a22d144a43-b8af63','m3','{"text": "memory 3", "metadata": {}}',X'0000000000000000000000000000803F','{"text": "rewritten", "metadata": {}}',X'0000803F0000803F0000803F0000803F');
CREATE TABLE dream_decisions (
	bank_id INTEGER NOT NULL, 
	memory_id TEXT NOT NULL, 
	run_id VARCHAR(64) NOT NULL, 
	digest VARCHAR(64), 
	weight FLOAT, 
	PRIMARY KEY (bank_id, memory_id, run_id)
)
 WITHOUT ROWID

;
INSERT INTO "dream_decisions" VALUES(1,'m0','1a22daf8ace-e94042','672f694c4e65be0f9ec6641a63702cbe434850cb2e7ecee8acd69015120bdcf6',1.0);
INSERT INTO "dream_decisions" VALUES(1,'m0','1a22daf8aee-27340a','',NULL);
INSERT INTO "dream_decisions" VALUES(1,'m7','1a22daf8ace-e94042','e5554fea3e4738e8b9199271560004cb9658e2bc65a4fce0e8efaac5e1a47ea2',1.0);
CREATE TABLE dream_edges (
	bank_id INTEGER NOT NULL, 
	source TEXT NOT NULL, 
	target TEXT NOT NULL, 
	kind VARCHAR(16) NOT NULL, 
	run_id VARCHAR(64) NOT NULL, 
	PRIMARY KEY (bank_id, source, target, kind, run_id)
);
INSERT INTO "dream_edges" VALUES(1,'m1','dream-derived/00000000000000000000000000000001','provenance','1a22d144ad9-b6b02c');
INSERT INTO "dream_edges" VALUES(1,'m2','dream-derived/00000000000000000000000000000001','provenance','1a22d144ad9-b6b02c');
INSERT INTO "dream_edges" VALUES(1,'m0','m1','bridge','1a22d144ad9-b6b02c');
CREATE TABLE dream_keys (
	bank_id INTEGER NOT NULL, 
	run_id VARCHAR(64) NOT NULL, 
	number INTEGER NOT NULL, 
	memory_id TEXT NOT NULL, 
	kind VARCHAR(16) NOT NULL, 
	text TEXT NOT NULL, 
	embedding BLOB, 
	PRIMARY KEY (bank_id, run_id, number)
);
INSERT INTO "dream_keys" VALUES(1,'1a22d144ad9-b6b02c',0,'m0','sentence','a key',NULL);
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
INSERT INTO "dream_memories" VALUES(1,'dream-derived/00000000000000000000000000000001',1.0,0.0,1.0,0.0,0.0,0,NULL,10);
INSERT INTO "dream_memories" VALUES(1,'m0',1.0,0.0,1.0,0.0,1.0,0,NULL,11);
INSERT INTO "dream_memories" VALUES(1,'m1',4.37057829291860433507e-01,1.96181448701555100067e-01,0.892590086600393,0.0,1.0,0,NULL,3);
INSERT INTO "dream_memories" VALUES(1,'m2',0.4,1.47470171974015379356e-01,1.0,0.0,0.0,0,NULL,5);
INSERT INTO "dream_memories" VALUES(1,'m3',8.62471266398599500924e-02,4.77085604337268154306e-01,1.0,0.0,0.0,0,NULL,3);
INSERT INTO "dream_memories" VALUES(1,'m4',1.0,0.0,1.0,0.0,0.0,0,NULL,8);
INSERT INTO "dream_memories" VALUES(1,'m5',0.6,1.02126710489764405132e-01,1.0,0.0,0.0,0,NULL,10);
INSERT INTO "dream_memories" VALUES(1,'m6',1.0,0.0,1.0,1.0,0.0,0,NULL,4);
INSERT INTO "dream_memories" VALUES(1,'m7',1.0,0.0,1.0,0.0,0.0,0,NULL,11);
CREATE TABLE dream_meta (
	"key" VARCHAR(64) NOT NULL, 
	value TEXT, 
	PRIMARY KEY ("key")
);
INSERT INTO "dream_meta" VALUES('schema_version','4');
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
	parent VARCHAR(64), 
	PRIMARY KEY (run_id)
);
INSERT INTO "dream_runs" VALUES('1a22d1449d1-a7b42c',1,'','add','applied',NULL,1.7960526340671525002e+09,1,8,'{}','{"added": 8, "asked": 8}',NULL);
INSERT INTO "dream_runs" VALUES('1a22d1449d7-052ca6',1,'','feedback','applied',NULL,1.7960526340738008022e+09,2,3,'{}','{"memories": 2, "success": 1.0}',NULL);
INSERT INTO "dream_runs" VALUES('1a22d144a0a-35d370',1,'','sweep','applied',NULL,1.79605263413021540644e+09,3,12,'{"alpha_rec": 0.6, "decay_law": "additive", "diagnosis": "threshold", "eta": 0.3, "gamma": 0.5, "iterations": 2, "k": 10.0, "kappa": 2.0, "lambda0": 0.4, "noise": "isotropic", "noise_ratio": 0.5, "probe": "auto", "retrieval_form": "logistic", "seed": 0, "sigma": null, "suspicion_gain": 0.25, "tau": 0.05, "terms": ["geometric", "retrieval", "coherence"], "theta_c": 0.5}','{"config": {"alpha_rec": 0.6, "decay_law": "additive", "diagnosis": "threshold", "eta": 0.3, "gamma": 0.5, "iterations": 2, "k": 10.0, "kappa": 2.0, "lambda0": 0.4, "noise": "isotropic", "noise_ratio": 0.5, "probe": "auto", "retrieval_form": "logistic", "seed": 0, "sigma": null, "suspicion_gain": 0.25, "tau": 0.05, "terms": ["geometric", "retrieval", "coherence"], "theta_c": 0.5}, "dry_run": false, "followed": 0, "forgotten": 1, "lowered": 6, "memories": 8, "raised": 0, "run_id": "1a22d144a0a-35d370", "seconds": 0.054696409999451134, "skipped": 0, "suspects": [{"abnormal": 2, "activation": 1.2182619995611612, "id": "m3", "reason": null, "suspicion": 0.47708560433726815, "terms": {}, "weight": 0.08624712663985995, "weight_before": 1.0}, {"abnormal": 1, "activation": 1.819036848566152, "id": "m1", "reason": null, "suspicion": 0.1961814487015551, "terms": {}, "weight": 0.43705782929186043, "weight_before": 1.0}, {"abnormal": 1, "activation": 1.8288397819906954, "id": "m0", "reason": null, "suspicion": 0.14740020383394736, "terms": {}, "weight": 0.5545486078569858, "weight_before": 1.0}, {"abnormal": 1, "activation": 1.3598502021226775, "id": "m2", "reason": null, "suspicion": 0.14747017197401538, "terms": {}, "weight": 0.7229408285983525, "weight_before": 1.0}, {"abnormal": 1, "activation": 1.9185102136882168, "id": "m7", "reason": null, "suspicion": 0.1425884579439659, "terms": {}, "weight": 0.7278371110452981, "weight_before": 1.0}, {"abnormal": 1, "activation": 1.4719548415454442, "id": "m5", "reason": null, "suspicion": 0.1021267104897644, "terms": {}, "weight": 0.7766995553993663, "weight_before": 1.0}], "trace": [{"abnormal": 4, "mean": 1.5850041203473886, "mean_weight": 0.7062704510993819, "std": 0.45624552892470505, "threshold": 1.448130461669977}, {"abnormal": 3, "mean": 1.7471696194047035, "mean_weight": 0.6631663823539654, "std": 0.4745283769009965, "threshold": 1.6048111063344046}], "warnings": []}',NULL);
INSERT INTO "dream_runs" VALUES('1a22d144a24-1d6755',1,'','delete','applied',NULL,1.79605263415047287944e+09,4,1,'{}','{}',NULL);
INSERT INTO "dream_runs" VALUES('1a22d144a2c-d3c2bb',1,'','reweight','applied',NULL,1.79605263415841746336e+09,5,1,'{}','{}',NULL);
INSERT INTO "dream_runs" VALUES('1a22d144a43-b8af63',1,'','update','applied',NULL,1.79605263418011355403e+09,6,1,'{}','{"memories": ["m3"]}',NULL);
INSERT INTO "dream_runs" VALUES('1a22d144a67-b62b1a',1,'','reweight','undone',NULL,1.79605263421724963184e+09,7,1,'{}','{}',NULL);
INSERT INTO "dream_runs" VALUES('1a22d144a8d-605eb1',1,'','undo','applied','1a22d144a67-b62b1a',1.79605263427551722528e+09,8,1,'{}','{"kind": "reweight", "undone": "1a22d144a67-b62b1a"}',NULL);
INSERT INTO "dream_runs" VALUES('1a22d144aca-de7a57',1,'','cycle','applied',NULL,1.79605263431446790694e+09,9,0,'{}','{}',NULL);
INSERT INTO "dream_runs" VALUES('1a22d144ad9-b6b02c',1,'','repair','applied',NULL,1.79605263436293864252e+09,10,2,'{}','{"derived": ["dream-derived/00000000000000000000000000000001"], "edges": 1, "keys": 1, "operation": "merge", "reason": "r", "reweighted": ["m5"], "sources": ["m1", "m2"]}','1a22d144aca-de7a57');
INSERT INTO "dream_runs" VALUES('1a22daf8ace-e94042',1,'','restore','applied',NULL,1.79606280878727293014e+09,11,4,'{}','{}',NULL);
INSERT INTO "dream_runs" VALUES('1a22daf8aee-27340a',1,'','distrust','applied',NULL,1.79606280881522631645e+09,12,0,'{}','{"memories": 1}',NULL);
CREATE TABLE dream_tiers (
	bank_id INTEGER NOT NULL, 
	memory_id TEXT NOT NULL, 
	tier VARCHAR(8) NOT NULL, 
	session TEXT NOT NULL, 
	since FLOAT NOT NULL, 
	PRIMARY KEY (bank_id, memory_id)
)
 WITHOUT ROWID

;
INSERT INTO "dream_tiers" VALUES(1,'m0','mtem','day',1.79605263439374637605e+09);
INSERT INTO "dream_tiers" VALUES(1,'m1','mtem','day',1.79605263439374637605e+09);
INSERT INTO "dream_tiers" VALUES(1,'m2','stim','day',1.79605263439374828338e+09);
INSERT INTO "dream_tiers" VALUES(1,'m3','stim','day',1.79605263439374947549e+09);
INSERT INTO "dream_tiers" VALUES(1,'m4','stim','day',1.79605263439375042915e+09);
INSERT INTO "dream_tiers" VALUES(1,'m5','stim','day',1.79605263439375138281e+09);
CREATE INDEX dream_edges_run ON dream_edges (run_id);
CREATE INDEX dream_memories_changed ON dream_memories (bank_id, changed_version);
CREATE INDEX dream_runs_parent ON dream_runs (parent);
CREATE INDEX dream_runs_bank ON dream_runs (bank_id, created_at);
CREATE INDEX dream_tiers_session ON dream_tiers (bank_id, tier, session, since);
COMMIT;
