#![allow(clippy::unwrap_used, missing_docs)]

use std::{fs, net::SocketAddr, time::Duration};

use sink_api::{ReadId, TableName, UndoSelector};

use super::*;
use crate::config::{
    ApplySettings, BatchSettings, Caps, DeadLetterSettings, LogFormat, Orphans, OutputFormat, Reset, ResetTo, Secret,
    SignalSettings, StartAt, TopicSelection, TruncateMode,
};

const NEEDED: &str = "--name w --bootstrap-servers k:9092 --topics shop.orders --sink postgres://app@db/shop";

/// Parses `flags` (split at blanks) after the program's name, with an environment and perhaps a file.
fn parse_with(flags: &str, environment: &[(&str, &str)], file: Option<&str>) -> Result<Parsed, Usage> {
    let file = file.map(|content| {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), content).unwrap();
        file
    });
    let mut argv: Vec<OsString> = ["sink-repair"].into_iter().chain(flags.split_whitespace()).map(Into::into).collect();
    argv.extend(file.iter().flat_map(|file| ["--config".into(), file.path().into()]));
    let environment = environment.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    let path = file.as_ref().map(|file| file.path().display().to_string()).unwrap_or("no file".into());
    parse(argv, &environment).map_err(|usage| Usage { message: usage.message.replace(&path, "FILE"), ..usage })
}

fn invocation(flags: &str, environment: &[(&str, &str)], file: Option<&str>) -> Invocation {
    match parse_with(flags, environment, file).unwrap() {
        Parsed::Run(invocation) => *invocation,
        Parsed::Show(text) => panic!("{text}"),
    }
}

fn apply(flags: &str, environment: &[(&str, &str)], file: Option<&str>) -> ApplySettings {
    match invocation(&format!("apply {flags}"), environment, file).command {
        Command::Apply(settings) => *settings,
        command => panic!("{command:?}"),
    }
}

fn refusal(flags: &str, environment: &[(&str, &str)], file: Option<&str>) -> (String, String) {
    let usage = parse_with(flags, environment, file).unwrap_err();
    (usage.message, usage.hint.unwrap_or_default())
}

#[test]
fn the_flags_are_well_formed() {
    app().debug_assert();
}

#[test]
fn what_is_not_given_has_its_default() {
    let settings = apply(NEEDED, &[], None);

    assert_eq!(settings.group, "sink-repair-w");
    assert_eq!(settings.topics, TopicSelection::Names(vec!["shop.orders".into()]));
    assert_eq!(settings.start, StartAt::Earliest);
    assert_eq!(settings.tables.truncate, TruncateMode::Stop);
    assert_eq!(settings.statements.orphans, Orphans::Report);
    assert_eq!(
        settings.statements.caps,
        Caps { max_removals: 1000, max_removals_percent: 5.0, max_removals_day: None }
    );
    assert_eq!(settings.statements.keep_removed, Duration::from_secs(30 * 86_400));
    assert_eq!(settings.batch, BatchSettings { rows: 2000, delay: Duration::from_millis(20) });
    assert_eq!(settings.listen, "127.0.0.1:9464".parse::<SocketAddr>().unwrap());
    assert_eq!((settings.dead_letter, settings.signal), (None, None));
    assert!(!settings.until_caught_up && !settings.tables.ignore_unknown_columns && !settings.statements.allow_cascade);
}

#[test]
fn flags_win_over_environment_and_environment_over_file() {
    let file = "batch-rows = 1\nbatch-delay = '1ms'\nmemory = '5MiB'\ngroup = 'file'\n";
    let environment = [("SINK_REPAIR_BATCH_ROWS", "2"), ("SINK_REPAIR_BATCH_DELAY", "2ms"), ("SINK_REPAIR_GROUP", "")];

    let settings = apply(&format!("{NEEDED} --batch-rows 3"), &environment, Some(file));

    assert_eq!(settings.batch, BatchSettings { rows: 3, delay: Duration::from_millis(2) });
    assert_eq!(settings.memory, 5 << 20);
    assert_eq!(settings.group, "file", "an empty variable is none");
}

#[test]
fn a_worker_can_be_set_up_by_environment_or_by_file_alone() {
    let environment = [
        ("SINK_REPAIR_NAME", "w"),
        ("SINK_REPAIR_BOOTSTRAP_SERVERS", "k:9092"),
        ("SINK_REPAIR_TOPICS", "shop.orders"),
        ("SINK_REPAIR_SINK", "postgres://app@db/shop"),
    ];
    let file =
        "name = 'w'\nbootstrap-servers = ['k:9092']\ntopics = ['shop.orders']\nsink = 'postgres://app@db/shop'\n";

    assert_eq!(apply("", &environment, None), apply(NEEDED, &[], None));
    assert_eq!(apply("", &[], Some(file)), apply(NEEDED, &[], None));
}

#[test]
fn properties_are_put_together_from_all_layers() {
    let file = "[kafka]\nsecurity.protocol = 'SSL'\nclient.id = 'file'\n[source-table]\n'shop.orders' = 'a.b'\n";
    let environment = [("SINK_REPAIR_KAFKA", "client.id=environment,fetch.wait.max.ms=5")];

    let settings =
        apply(&format!("{NEEDED} --kafka fetch.wait.max.ms=6 --kafka debug=broker,topic"), &environment, Some(file));

    assert_eq!(
        settings.kafka.properties.iter().collect::<Vec<_>>(),
        [
            ("client.id", "environment"),
            ("debug", "broker,topic"),
            ("fetch.wait.max.ms", "6"),
            ("security.protocol", "SSL")
        ]
    );
    assert_eq!(settings.tables.mapping.assigned("shop.orders"), Some(("a", "b")));
}

#[test]
fn a_switch_can_be_turned_on_anywhere_and_off_again() {
    let on = "allow-cascade = true\n";

    assert!(apply(&format!("{NEEDED} --allow-cascade"), &[], None).statements.allow_cascade);
    assert!(apply(NEEDED, &[("SINK_REPAIR_ALLOW_CASCADE", "1")], None).statements.allow_cascade);
    assert!(apply(NEEDED, &[], Some(on)).statements.allow_cascade);
    assert!(!apply(&format!("{NEEDED} --allow-cascade=false"), &[], Some(on)).statements.allow_cascade);
}

#[test]
fn every_setting_can_be_given() {
    let dir = tempfile::tempdir().unwrap();
    let (password, key) = (dir.path().join("password"), dir.path().join("key"));
    fs::write(&password, "p\n").unwrap();
    fs::write(&key, "0123456789abcdef\n").unwrap();
    let flags = format!(
        "--name w --bootstrap-servers k:9092 --topics t --sink postgres://app@db/shop --kafka client.id=b --group g \
         --sink-password-file {} --sink-table public.{{table}} --source-table t=public.t --start latest --truncate apply \
         --ignore-unknown-columns --allow-cascade --keep-removed 7d --marker-key-file {} --orphans remove \
         --max-removals 1 --max-removals-percent 2.5 --max-removals-day 3 --dead-letter-topic dlq \
         --dead-letter-replication-factor 2 --signal-topic s --signal-key shop --batch-rows 4 --batch-delay 5ms \
         --memory 6MiB --listen 0.0.0.0:0 --log json --log-level debug --until-caught-up --decimal-handling-mode string \
         --time-precision-mode adaptive_time_microseconds --binary-handling-mode base64-url-safe \
         --interval-handling-mode string --hstore-handling-mode map --unavailable-value-placeholder gone \
         --window-max-bytes 8MiB --window-max-age 9m",
        password.display(),
        key.display()
    );

    let settings = apply(&flags, &[], None);

    assert_eq!(settings.sink.password, Some(Secret::new("p".to_owned())));
    assert_eq!(settings.statements.marker_key, Some(Secret::new(b"0123456789abcdef".to_vec())));
    assert_eq!(settings.dead_letter, Some(DeadLetterSettings { topic: "dlq".into(), replication_factor: Some(2) }));
    assert_eq!(settings.signal, Some(SignalSettings { topic: "s".into(), key: "shop".into() }));
    assert_eq!(settings.statements.window_max_age, Duration::from_secs(540));
    let given = flags.split_whitespace().filter_map(|word| word.strip_prefix("--")).collect::<BTreeSet<_>>();
    let not_given: Vec<String> = settings_names().into_iter().filter(|long| !given.contains(long.as_str())).collect();
    assert_eq!(
        not_given,
        ["sink-password", "topics-regex"],
        "the one is refused on the command line, the other excluded"
    );
}

fn settings_names() -> BTreeSet<String> {
    super::settings(&app(), |_| true)
}

#[test]
fn single_values_are_refused_at_the_place_where_they_stand() {
    let unit = "write a time such as 500ms; the units are ms, s, m, h, d";
    let bad_unit = |place: &str| (format!("{place}: `5` has no unit"), unit.to_owned());

    assert_eq!(refusal("apply --batch-delay 5", &[], None), bad_unit("--batch-delay"));
    assert_eq!(
        refusal("apply --keep-removed 0s", &[], None),
        (
            "--keep-removed: `0s` is too short: what is forgotten cannot be brought back".to_owned(),
            "write 1h or more, such as 30d".to_owned()
        )
    );
    assert_eq!(refusal("apply", &[("SINK_REPAIR_BATCH_DELAY", "5")], None), bad_unit("SINK_REPAIR_BATCH_DELAY"));
    assert_eq!(refusal("apply", &[], Some("batch-delay = 5")), bad_unit("`batch-delay` in FILE"));
}

#[test]
fn what_is_wrong_is_said_with_what_to_do() {
    for (flags, message, hint) in [
        ("", "no command is given", "run: sink-repair --help"),
        ("aply", "there is no command `aply`", "run: sink-repair --help"),
        ("apply --topcis a", "there is no flag `--topcis` here", "did you mean `--topics`?"),
        ("apply --zzz", "there is no flag `--zzz` here", "run: sink-repair apply --help"),
        ("apply --name", "--name has no value", "run: sink-repair apply --help"),
        ("apply --group a --group b", "--group is given twice", "give it once"),
        ("apply --orphans remov", "--orphans: `remov` is not one of report, remove, ignore", "did you mean `remove`?"),
        ("apply --batch-rows 0", "--batch-rows: 0 is not in 1..=100000", "run: sink-repair apply --help"),
        (
            "apply --listen localhost",
            "--listen: `localhost` is not an address to listen on",
            "write IP:PORT, such as 127.0.0.1:9464, or 0.0.0.0:9464 for all of the machine's addresses",
        ),
        ("apply --kafka group.id=x", "--kafka: `group.id` is set by the worker", "use --group"),
        (
            "apply --kafka session.timeout.ms=x",
            "--kafka: the value of the librdkafka property `session.timeout.ms` is not valid",
            "the names and values are those of https://github.com/confluentinc/librdkafka/blob/master/CONFIGURATION.md",
        ),
        (
            "apply --topics-regex ((",
            "--topics-regex: `((` is not a regular expression: unclosed group",
            "write a pattern such as shop\\.inventory\\..*",
        ),
        (
            "apply --max-removals -1",
            "--max-removals: it is not a whole number, 0 or above",
            "run: sink-repair apply --help",
        ),
        ("apply -x", "there is no flag `-x` here", "run: sink-repair apply --help"),
        (
            "undo --sink postgres://app@db/shop",
            "it is not said what to undo",
            "give --read-id ID (from the log, or from sink_repair.statement), or --table TABLE --since 2h",
        ),
        ("undo --table a.b", "--since <TIME> is missing", "run: sink-repair undo --help"),
        ("undo --table a.b --since 2h --read-id x", "--table and --read-id exclude each other", "give one of them"),
        ("status --url k:9092", "`k:9092` is not a worker's address", "write http://HOST:PORT"),
    ] {
        assert_eq!(refusal(flags, &[], None), (message.to_owned(), hint.to_owned()), "{flags}");
    }
}

#[test]
fn a_property_that_librdkafka_does_not_know_is_refused_where_it_stands() {
    let unknown = |place: &str, (message, hint): (String, String)| {
        assert!(
            message.starts_with(&format!("{place}: `foo.bar` is not a property of librdkafka ")) && !hint.is_empty(),
            "{message}"
        );
    };

    unknown("--kafka", refusal("apply --kafka foo.bar=1", &[], None));
    unknown("SINK_REPAIR_KAFKA", refusal("apply", &[("SINK_REPAIR_KAFKA", "foo.bar=1")], None));
    unknown("`kafka` in FILE", refusal("apply", &[], Some("[kafka]\nfoo.bar = 1")));
}

#[test]
fn settings_that_do_not_fit_together_are_refused() {
    for (flags, message) in [
        ("--topics-regex x", "--topics and --topics-regex exclude each other"),
        ("--signal-topic s", "--signal-topic is given without --signal-key"),
        ("--signal-key k", "--signal-key is given without --signal-topic"),
        ("--signal-topic shop.orders --signal-key k", "`shop.orders` is both read and the signal topic"),
        ("--dead-letter-topic shop.orders", "`shop.orders` is both read and the dead letter topic"),
        ("--dead-letter-replication-factor 1", "--dead-letter-replication-factor is given without --dead-letter-topic"),
        ("--source-table other=a.b", "--source-table names the topic `other`, which is not read"),
        ("--memory 1MiB", "--memory 1MiB is too little for a lane"),
        ("--batch-delay 2m", "--batch-delay is too long: changes would be held back in silence"),
        ("--window-max-age 1ms", "--window-max-age is too short"),
        ("--window-max-bytes 1B", "--window-max-bytes is too little for a read to end within it"),
        ("--group=", "--group is empty"),
        ("--unavailable-value-placeholder=", "--unavailable-value-placeholder is empty"),
        ("--log-level =", "`=` is not a log level"),
    ] {
        let (found, hint) = refusal(&format!("apply {NEEDED} {flags}"), &[], None);
        assert_eq!(found, message);
        assert!(!hint.is_empty(), "{flags}");
    }

    let several = "apply --name w --bootstrap-servers k:9092 --sink postgres://db/shop --truncate apply";
    let refused =
        "--truncate apply needs --topics with exactly one topic: a truncate has no key and could be another table's";
    assert_eq!(refusal(&format!("{several} --topics a,b"), &[], None).0, refused);
    assert_eq!(refusal(&format!("{several} --topics-regex a"), &[], None).0, refused);
}

#[test]
fn what_is_needed_is_asked_for() {
    for missing in ["--name", "--bootstrap-servers", "--sink"] {
        let words: Vec<&str> = NEEDED.split_whitespace().collect();
        let rest: Vec<&str> = words.chunks(2).filter(|pair| pair[0] != missing).flatten().copied().collect();
        assert_eq!(refusal(&format!("apply {}", rest.join(" ")), &[], None).0, format!("{missing} is missing"));
    }
    assert_eq!(refusal("apply --name w", &[], None).0, "no topics are given");
}

#[test]
fn a_password_is_taken_from_environment_or_file_only() {
    let password = |settings: ApplySettings| settings.sink.password;
    let secret = Some(Secret::new("hunter2".to_owned()));
    let variable = [("SINK_REPAIR_SINK_PASSWORD", "hunter2")];

    assert_eq!(password(apply(NEEDED, &variable, None)), secret);
    assert_eq!(password(apply(NEEDED, &[], Some("sink-password = 'hunter2'"))), secret);
    let (message, hint) = refusal(&format!("apply {NEEDED} --sink-password hunter2"), &[], None);
    assert!(message.starts_with("the sink's password stands on the command line"), "{message}");
    assert!(!message.contains("hunter2") && !hint.contains("hunter2"));
    let (message, _) = refusal(&format!("apply {NEEDED} --sink-password-file /f"), &variable, None);
    assert_eq!(message, "the sink's password is given twice: by itself and with --sink-password-file");
}

#[test]
fn secrets_on_the_command_line_work_and_are_warned_of() {
    let flags = "apply --name w --bootstrap-servers k:9092 --topics t --sink postgres://app:hunter2@db/shop --kafka sasl.password=hunter2";

    let invocation = invocation(flags, &[], None);

    assert_eq!(invocation.warnings.len(), 2, "{:?}", invocation.warnings);
    assert!(invocation.warnings.iter().all(|warning| warning.contains("command line")));
    assert!(!format!("{invocation:?}").contains("hunter2"), "{invocation:?}");
}

#[test]
fn the_same_secrets_elsewhere_are_not_warned_of() {
    let environment =
        [("SINK_REPAIR_SINK", "postgres://app:hunter2@db/shop"), ("SINK_REPAIR_KAFKA", "sasl.password=hunter2")];

    let invocation = invocation("apply --name w --bootstrap-servers k:9092 --topics t", &environment, None);

    assert_eq!(invocation.warnings, Vec::<String>::new());
    assert!(!format!("{invocation:?}").contains("hunter2"), "{invocation:?}");
}

#[test]
fn no_message_repeats_a_secret() {
    for (flags, environment, file) in [
        ("--sink app:hunter2@db", ("X", ""), None),
        ("--sink mysql://app:hunter2@db/shop", ("X", ""), None),
        ("--kafka hunter2", ("X", ""), None),
        ("", ("SINK_REPAIR_SINK", "app:hunter2@db"), None),
        ("", ("SINK_REPAIR_KAFKA", "group.id=hunter2"), None),
        ("", ("X", ""), Some("sink-password = hunter2")),
        ("", ("X", ""), Some("sink = 'app:hunter2@db'")),
        ("", ("X", ""), Some("sink-passwrd = 'hunter2'")),
        ("", ("X", ""), Some("[kafka]\n'sasl password' = 'hunter2'")),
    ] {
        let usage = parse_with(&format!("apply {flags}"), &[environment], file).unwrap_err();
        assert!(!format!("{usage:?}").contains("hunter2"), "{usage:?}");
    }
}

#[test]
fn one_file_serves_all_commands() {
    let file = "name = 'w'\nlisten = '0.0.0.0:9000'\nsink = 'postgres://app@db/shop'\nlog = 'json'\nmax-removals = 7\n\
                bootstrap-servers = 'k:9092'\nsignal-topic = 's'\nsignal-key = 'shop'\n";

    let status = invocation("status --format json", &[], Some(file));
    assert_eq!(status.log.format, LogFormat::Json);
    match status.command {
        Command::Status(settings) => {
            assert_eq!((settings.url.as_str(), settings.format), ("http://127.0.0.1:9000", OutputFormat::Json));
        }
        command => panic!("{command:?}"),
    }
    match invocation("confirm --read-id snap-01 --up-to 20", &[], Some(file)).command {
        Command::Confirm(settings) => assert_eq!((settings.read_id, settings.up_to), (ReadId("snap-01".into()), 20)),
        command => panic!("{command:?}"),
    }
    match invocation("undo --table public.orders --since 2026-11-30T08:00:00Z", &[], Some(file)).command {
        Command::Undo(settings) => assert_eq!(
            settings.selector,
            UndoSelector::Table { table: TableName::new("public", "orders"), since: 1_796_025_600_000_000 }
        ),
        command => panic!("{command:?}"),
    }
    match invocation("reset --topic t --partition 0 --to 42", &[], Some(file)).command {
        Command::Reset(settings) => match settings.reset {
            Reset::Topic { name, to, new_name, .. } => {
                assert_eq!((name.as_str(), to, new_name), ("w", ResetTo::Offset(sink_api::Offset(42)), false));
            }
            reset => panic!("{reset:?}"),
        },
        command => panic!("{command:?}"),
    }
}

#[test]
fn help_names_default_and_variable_of_every_setting() {
    let Parsed::Show(help) = parse_with("apply --help", &[], None).unwrap() else { panic!("help is shown") };

    let help = help.to_string().split_whitespace().collect::<Vec<_>>().join(" ");
    for long in settings_names() {
        let shown =
            help.contains(&format!("--{long}")) && help.contains(&format!("[env: {}]", layers::variable(&long)));
        assert_eq!(shown, long != "sink-password", "--{long}");
    }
    assert!(help.contains("[default: 20ms]") && help.contains("[default: report]"), "{help}");
}

#[test]
fn the_documentation_lists_the_settings_as_they_are_declared() {
    let apply = app().find_subcommand("apply").unwrap().clone();
    let mut sections: Vec<(String, String)> = Vec::new();
    for arg in apply.get_arguments().filter(|arg| !matches!(arg.get_id().as_str(), "config" | "sink_password" | "help"))
    {
        let heading = arg.get_help_heading().unwrap_or("The worker").to_owned();
        let long = arg.get_long().unwrap();
        let help = arg.get_help().unwrap().to_string().replace('\u{a0}', " ");
        let help = help.split(" [env: ").next().unwrap();
        let (help, default) =
            help.strip_suffix(']').and_then(|help| help.split_once(" [default: ")).unwrap_or((help, ""));
        let value = arg.get_value_names().map(|names| names[0].to_string()).unwrap_or_default();
        let flag =
            if arg.is_require_equals_set() { format!("`--{long}[={value}]`") } else { format!("`--{long}` {value}") };
        let row = format!("| {flag} | {default} | {help} |\n");
        match sections.iter_mut().find(|(known, _)| *known == heading) {
            Some((_, rows)) => rows.push_str(&row),
            None => sections.push((heading, row)),
        }
    }
    let mut page = String::from(
        "# Settings of `sink-repair apply`\n\n\
         Each flag is also an environment variable and a key of the TOML file that `--config` (or `SINK_REPAIR_CONFIG`)\n\
         names: `--batch-rows 500`, `SINK_REPAIR_BATCH_ROWS=500`, `batch-rows = 500`. Flags win over the environment, the\n\
         environment over the file. Repeatable flags are tables in the file (`[kafka]`, `[source-table]`) and lists between\n\
         commas or line ends in the environment. The sink's password stands in `SINK_REPAIR_SINK_PASSWORD`, as `sink-password`\n\
         in the file, or in a file of its own. Sizes and times have units: `64MiB`, `500ms`, `30d`.\n\n\
         Made from `src/cli/args.rs` by `BLESS=1 cargo test -p sink-repair --lib cli`; a test compares the two.\n",
    );
    for (heading, rows) in sections {
        page.push_str(&format!("\n## {heading}\n\n| flag | default | |\n|---|---|---|\n{rows}"));
    }
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/settings.md");
    if std::env::var_os("BLESS").is_some() {
        fs::write(&path, &page).unwrap();
    }

    let written = fs::read_to_string(&path).unwrap();

    assert_eq!(written, page, "docs/settings.md is out of date: BLESS=1 cargo test -p sink-repair --lib cli");
}
