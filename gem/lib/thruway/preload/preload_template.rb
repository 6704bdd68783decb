# frozen_string_literal: true

%w[../support/fork_safety boot_state entry_script environment_watcher rake_state
   watched_arguments].each do |name|
  load("#{__dir__}/#{name}.rb", Module.nesting.first)
end

# The process from which preloaded commands are forked. The template boots once, by loading the
# features that earlier runs of the command have loaded, and then forks a child for each command.
# This code replaces a feature that Ruby requires before the command's script: in a child, `run`
# returns, and Ruby continues with the script as usual. The file is loaded into an anonymous module
# (`load` with a module), because a command must not see a `Thruway` that the command has not
# required. See docs/explanation/design/preload.md.
class PreloadTemplate
  # The reason why this process cannot be a template. It is raised and rescued in this class only,
  # and never below a frame of the application.
  class Refusal < StandardError
  end

  # The files of Rails before which a child compares its environment with that of the template.
  OF_RAILS = %w[/config/application.rb /config/environment.rb].freeze
  # The application's own boot, which may have effects. Features before these must only read.
  OF_BOOT = ["/config/boot.rb", *OF_RAILS].freeze
  # Folders that are put into the load path when a gem is activated.
  OF_GEMS = %r{/(gems|extensions)/}
  # The memory that a template may use, unless THRUWAY_PRELOAD_MB is set.
  MEGABYTES_MAX = 1024
  # Signals that Ruby itself handles, so that the kernel does not tell whether a program does.
  HANDLED = %w[HUP INT TERM QUIT ALRM USR1 USR2].freeze
  # The option -s: Ruby turns switches among the script's arguments into global variables.
  TAKES_SWITCHES = /\A-[acdhlnpSUvwy\d]*s/
  # The option -v: Ruby prints its version before it loads anything.
  PRINTS_VERSION = /\A-[acdhlnpSUwy\d]*v/

  def initialize(native)
    @native = native
    @environment = ENV.to_h
    @encodings = [Encoding.default_external, Encoding.default_internal]
    @parts = {}
    @folders = {}
    @states = {}
    # Variables that differ between commands, and are not compared.
    @uncompared = [*native.volatile, "THRUWAY_BOOT"]
  end

  # Boots, and serves requests for forks. Returns only in a child, which becomes the command.
  def run
    objection = boot
    give_up(objection) if objection
    serve
  end

  private

  # Returns nil, or the reason why this process cannot be a template.
  def boot
    features, variables, @arguments, rake = @native.plan
    refuse("its features are not known") unless features
    @rake = RakeState.new(rake)
    @prefix = prefix
    check_options
    @surroundings = surroundings
    @start = BootState.now
    script = EntryScript.new($0, ARGV.dup, features.map(&:first))
    objection = script.objection
    @native.bare(objection) if objection
    load_ahead(script, features, variables) unless objection
    read_specifications
    ForkSafety.disconnect
    check_state
    check_memory
    take_unflushed
    of_ruby = ->(one) { one.seed > BootState::OWN_SEED_MAX }
    @randoms = ObjectSpace.each_object(Random).select(&of_ruby)
    @native.exclude(hooks&.excluded.to_a)
    @native.listen(Dir.pwd, $LOADED_FEATURES) || refuse("there is no socket")
    nil
  rescue Refusal => e
    e.message
  rescue Exception => e # rubocop:disable Lint/RescueException
    "it raises #{e.class} as it boots"
  end

  def load_ahead(script, features, variables)
    chosen = script.chosen_executable unless defined?(::Bundler)
    readers = EnvironmentWatcher.new(__FILE__) { @native.read_all_variables }
    readers.watching do
      BootState.keeping_titles { watching_arguments { load_features(features, variables) } }
    end
    drawn = @states.values.filter_map { |state| state[:random] }
    refuse("it draws more random numbers than can be drawn again") unless drawn.all?(&:last)
    return unless chosen && defined?(::Bundler)

    # The script asks before the application sets up Bundler, and a child after that.
    is_same = chosen == script.chosen_executable
    refuse("the application's bundle has another gem of the command, or none") unless is_same
  end

  def refuse(reason) = raise(Refusal, reason)

  def give_up(reason)
    @native.refuse(reason)
    exit!(1)
  end

  # The number of the command's words before the arguments of Ruby's script.
  def prefix
    words = @native.words
    ends_alike = arguments(words.last(ARGV.size)) == ARGV
    refuse("its arguments reach Ruby in another form") unless ends_alike
    @program = File.binread("/proc/self/cmdline").chomp("\0").split("\0", -1)
    @program.pop(ARGV.size)
    @native.same_words(words.size - ARGV.size)
    words.size - ARGV.size
  end

  # Refuses options whose effects happen before this code runs.
  def check_options
    options = @program.drop(1) + ENV.fetch("RUBYOPT", "").split
    has = ->(pattern) { options.any? { |word| word.match?(pattern) } }
    refuse("Ruby takes switches out of its script's arguments (-s)") if has[TAKES_SWITCHES]
    refuse("Ruby prints its version (-v)") if has[PRINTS_VERSION]
    refuse("its script is its standard input") if $0 == "-"
    @native.script($0) unless $0 == "-e"
  end

  # The state of the process that a boot must not change, since children would inherit the change.
  def surroundings
    # The first 31 signals: libc uses others itself.
    caught = File.read("/proc/self/status")[/^SigCgt:\s*(\h+)/, 1].hex & 0x7fffffff
    { "the current folder" => Dir.pwd, "the umask" => File.umask,
      "a standard stream" => [STDIN, STDOUT, STDERR].map(&:closed?),
      "a signal's handler" => [caught, HANDLED.map { |signal| handler(signal) }] }
  end

  def handler(signal)
    handler = trap(signal, "DEFAULT")
    trap(signal, handler || "IGNORE") unless handler == "DEFAULT"
    handler
  end

  def load_features(features, variables)
    count = features.index { |path, _| path.end_with?(*OF_RAILS) } || features.size
    @changes = last = changes { features.first(count).each { |feature| load_feature(*feature) } }
    variables.each { |name, value| ENV[name] = value unless last.key?(name) }
    ARGV.replace(@arguments = arguments(@arguments)) if @native.of_words? && count < features.size
    features.drop(count).each do |path, *folders|
      before = compared(ENV.to_h)
      rake = nil
      made = changes { rake = @rake.while_booting { load_feature(path, *folders) } }
      path.end_with?(*OF_RAILS) ? @parts[path] = [before, last = made, rake] : last.update(made)
    end
    add_nested
  end

  # Registers files of Rails that another one has loaded (`config/application` within
  # `config/environment`). Children compare the variables of the outer file for them.
  def add_nested
    inner = $LOADED_FEATURES.select { |path| path.end_with?(*OF_RAILS) } - @parts.keys
    return if @parts.empty?

    outer, part = @parts.to_a.last
    inner.each { |path| @parts[path], @states[path] = part, @states[outer] }
    @states.compact!
  end

  # Notices a boot that looks at the arguments, whose result is right only for equal arguments. The
  # template then starts again, for this command line only, so that the boot finds the real Array.
  def watching_arguments
    return yield if @native.of_words?

    original = ARGV
    were_read = false
    exchange_arguments(WatchedArguments.new(original) { were_read = true })
    yield
  ensure
    exchange_arguments(original) if original
    start_again if were_read && surroundings == @surroundings
  end

  def start_again = start(@environment.merge([@native.role_of_words].to_h), @native.words)

  # Starts a command in the place of this process. The pair keeps Ruby from passing a single word to
  # a shell.
  def start(environment, words)
    exec(environment, [words.first, words.first], *words.drop(1), unsetenv_others: true)
  end

  def exchange_arguments(arguments)
    Object.send(:remove_const, :ARGV)
    Object.const_set(:ARGV, arguments)
  end

  # Loads a feature by its path, as the command has done by a name that made RubyGems activate the
  # feature's gem.
  def load_feature(path, first, last)
    folders = [first, last].map { |all| all - $LOAD_PATH }
    @folders[path] = folders if folders.any?(&:any?)
    before = BootState.now
    with_folders(*folders) do
      activate(path) unless $LOAD_PATH.any? { |folder| path.start_with?("#{folder}/") }
      path.end_with?(*OF_BOOT) ? require(path) : require_without_acts(path)
    end
    state = BootState.since(before)
    @states[path] = state if state.any?
  end

  # Loads a file that had effects in the run from which the plan was learned. Before the file has
  # effects here as well, this process ends.
  def require_without_acts(path)
    @native.loads(path)
    require(path)
    STDOUT.flush unless STDOUT.closed?
  ensure
    @native.loads(nil)
  end

  # Adds folders to the load path while the block runs. The command itself adds them, in each child
  # again.
  def with_folders(first, last)
    $LOAD_PATH.unshift(*first) if first.any?
    $LOAD_PATH.push(*last) if last.any?
    yield
  ensure
    own = first + last
    $LOAD_PATH.delete_if { |folder| own.any? { |one| one.equal?(folder) } } if own.any?
  end

  def activate(path)
    return if !defined?(::Gem::Specification) || defined?(::Bundler)

    stub = ::Gem::Specification.stubs.find { |one| path.start_with?("#{one.full_gem_path}/") }
    stub&.to_spec&.activate
  end

  # Takes the output that the boot has left in Ruby's buffers, so that each child can write it to
  # its own streams. A fork would write it to the template's streams, which lead nowhere.
  def take_unflushed
    @unflushed = [STDOUT, STDERR].reject(&:closed?).map do |stream|
      count = @native.output_count
      stream.flush
      [stream, stream.external_encoding ? "" : @native.take_output(count)]
    end
  end

  # Reads the gems' specifications in advance if a binstub of RubyGems will look up its command:
  # Bundler reads each gem's specification then, but not before.
  def read_specifications
    return unless defined?(::Bundler) && File.file?(@program.last)

    is_binstub = File.binread(@program.last).include?("Gem.activate_bin_path")
    ::Gem.loaded_specs.each_value(&:executables) if is_binstub
  end

  # The changes of the environment that the block makes. Each child makes them when it asks for that
  # part of the boot.
  def changes
    before = ENV.to_h
    yield
    now = ENV.to_h
    (before.keys | now.keys).reject { |name| before[name] == now[name] }
                            .to_h { |name| [name, now[name]] }
  end

  def check_state
    objection = @native.objection || @native.open_files_objection || @rake.objection
    refuse(objection) if objection
    changed = surroundings.find { |name, value| @surroundings[name] != value }
    refuse("it changes #{changed.first}") if changed
    check_threads
    refuse("Coverage is running") if coverage?
    refuse("$DEBUG is on") if $DEBUG
  end

  def check_threads
    thread = ForkSafety.end_threads(Thread.list - [Thread.main])
    refuse("it starts a thread (#{thread.inspect})") if thread
  end

  def check_memory
    megabytes = File.read("/proc/self/status")[/^VmRSS:\s*(\d+)/, 1].to_i / 1024
    allowed = Integer(ENV.fetch("THRUWAY_PRELOAD_MB", MEGABYTES_MAX))
    refuse("it uses #{megabytes} MB, and #{allowed} are allowed") if megabytes > allowed
  end

  def coverage? = defined?(::Coverage) && ::Coverage.running?

  def serve
    3.times { GC.start }
    Process.setproctitle("thruway: template of #{@native.words.join(" ")}")
    while @native.next_request?
      child = fork_for_request
      return become if child == :child
    end
    @native.end
    exit!(0)
  end

  def fork_for_request
    template = Process.pid
    hooks&.run_before_fork
    child = Process.fork
    return :child unless child

    @native.forked(child)
    child
  rescue Exception => e # rubocop:disable Lint/RescueException
    @native.failed("#{e.class}: #{e.message}")
    # In the child, a hook of `fork` may have raised.
    exit!(1) unless Process.pid == template
  end

  # Makes this process the command.
  def become
    words, environment = @native.take_over
    exit!(2) unless words

    @words, @given = words, environment.each_slice(2).to_h
    take_environment
    ARGV.replace(arguments(words.drop(@prefix)))
    BootState.set(@start.slice(*BootState.since(@start).keys).except(:title, :random))
    title
    seed_anew
    guarded = @parts.keys | @folders.keys | @states.keys
    guarded.any? ? @native.guard(guarded, method(:compare)) : write_unflushed
    hooks&.run_after_fork
  end

  # Writes the output of the boot, after the output that the command has written before it asked for
  # the application.
  def write_unflushed
    unflushed, @unflushed = @unflushed, nil
    return unless unflushed

    [STDOUT, STDERR].reject(&:closed?).each(&:flush)
    @native.write_output
    unflushed.each { |stream, bytes| stream.write(bytes) }
  end

  # Encodes the arguments as Ruby does at its start, whatever the boot has done to the default
  # encodings.
  def arguments(words)
    external, internal = @encodings
    words.map do |word|
      word = word.dup.force_encoding(external)
      is_unknown = external == Encoding::US_ASCII && !word.ascii_only?
      (is_unknown ? word.b : encoded(word, internal)).freeze
    end
  end

  def encoded(word, internal)
    internal && word.encoding != Encoding::BINARY ? word.encode(internal) : word
  rescue EncodingError
    word
  end

  def take_environment
    ENV.replace(@given)
    set(@changes || {})
    take_original_environment
  end

  # Corrects Bundler's copy of the environment, which is the template's.
  def take_original_environment
    return unless defined?(::Bundler::ORIGINAL_ENV) && !::Bundler::ORIGINAL_ENV.frozen?

    @native.volatile.each do |name|
      given = @given[name]
      given ? ::Bundler::ORIGINAL_ENV[name] = given : ::Bundler::ORIGINAL_ENV.delete(name)
    end
  end

  def set(variables) = variables.each { |name, value| ENV[name] = value }

  # Reseeds the random numbers of each command, if Ruby had chosen the seed.
  def seed_anew
    Random.srand
    @randoms.reject(&:frozen?).each { |one| Random.instance_method(:initialize).bind_call(one) }
  end

  # Sets the process title to the words of the command line: those of Ruby, then the arguments.
  def title = Process.setproctitle([*@program, *ARGV].map(&:b).join(" "))

  # Called when the command asks for a feature. If the feature was booted under other conditions
  # than the command's, the command is started without the template. Returns whether more features
  # are to be compared.
  def compare(path)
    compare_folders(@folders.delete(path))
    part = @parts.delete(path)
    compare_part(part) if part
    take_state(path)
    write_unflushed
    [@parts, @folders, @states].any?(&:any?)
  end

  # Makes the changes that the feature made to Ruby's own state.
  def take_state(path)
    state = @states.delete(path)
    return unless state

    @states.delete_if { |_, other| other.equal?(state) }
    BootState.set(state)
  end

  # Compares the load path: with other folders, the command would find another feature of that name.
  def compare_folders(folders)
    return unless folders

    first, last = folders
    now = $LOAD_PATH.grep_v(OF_GEMS)
    is_same = now.first(first.size) == first && now.last(last.size) == last
    boot_after_all("the load path differs") unless is_same
  end

  def compare_part(part)
    @parts.delete_if { |_, other| other.equal?(part) }
    before, made, rake = part
    now = compared(ENV.to_h)
    differs = (now.keys | before.keys).find { |name| now[name] != before[name] }
    boot_after_all("the variable #{differs} differs") if differs
    boot_after_all("Coverage is running") if coverage?
    compare_arguments if @native.of_words?
    compare_rake(*rake)
    set(made)
  end

  # Compares Rake's tasks and options with those of the template, if the boot has read them.
  def compare_rake(state, application)
    boot_after_all("Rake's tasks or options differ") if state && state != RakeState.now
    is_same = application.nil? || RakeState.application.equal?(application)
    boot_after_all("the tasks that it defines are another application's of Rake") unless is_same
  end

  # Compares the arguments in their current state, in which the command may have removed some, with
  # the state that the boot has seen.
  def compare_arguments
    boot_after_all("its arguments differ by then") if @arguments && @arguments != ARGV
    @arguments = nil
  end

  def boot_after_all(reason)
    is_explained = ENV.fetch("THRUWAY_BOOT", "").split(",").include?("explain")
    warn "thruway: preload: booted after all: #{reason}" if is_explained
    start(@given, @words)
  end

  def compared(variables) = variables.reject { |name, _| @uncompared.include?(name) }

  # The application's own hooks, if it has any.
  def hooks = (::Thruway::Preload if defined?(::Thruway::Preload.before_fork))
end
