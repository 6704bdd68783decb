# frozen_string_literal: true

%w[../support/fork_safety entry_script boot_state environment_watcher].each do |name|
  load("#{__dir__}/#{name}.rb", Module.nesting.first)
end

# A Ruby that loads what a command's runs load, waits, and is forked for each of them. It is
# evaluated in a module of its own (`load` with a module). That happens in the place of a feature
# that Ruby requires before the command's script. A child returns from here, and Ruby goes on as
# always. See docs/explanation/design/preload.md.
class Template
  # When a child asks for one of Rails' files, the variables are those under which it was loaded.
  OF_RAILS = %w[/config/application.rb /config/environment.rb].freeze
  # These folders are put into the load path as a gem is activated.
  OF_GEMS = %r{/(gems|extensions)/}
  # A template that takes more is none, unless THRUWAY_PRELOAD_MB allows it.
  MEGABYTES_MAX = 1024
  # Ruby itself catches them, whatever a program has made of them.
  HANDLED = %w[HUP INT TERM QUIT ALRM USR1 USR2].freeze
  # Ruby takes switches out of its script's arguments, and makes globals of them (-s).
  TAKES_SWITCHES = /\A-[acdhlnpSUvwy\d]*s/
  # Ruby says it before anything is loaded.
  SAYS_VERSION = /\A-[acdhlnpSUwy\d]*v/

  # The arguments as a boot sees them: it is noted that it looks. Of an Array, `[*ARGV]` and
  # `%w[a] & ARGV` take the elements without a call. So this is none, and Ruby asks it for them. A
  # boot that keeps it keeps the command's own arguments.
  class Arguments < BasicObject
    # These tell nothing of the elements. OptionParser extends ARGV as it is loaded.
    TELL_NOTHING = %i[extend object_id].freeze

    def initialize(arguments, &noted)
      @arguments = arguments
      @noted = noted
    end

    def to_a = @arguments.tap(&@noted)
    alias to_ary to_a

    def ==(other) = to_a == other
    def !=(other) = to_a != other
    def equal?(other) = super || @arguments.equal?(other)
    # Ruby asks it before it takes something for a String.
    def respond_to?(...) = to_a.respond_to?(...)
    def respond_to_missing?(...) = to_a.respond_to?(...)

    def method_missing(name, ...)
      @noted.call unless TELL_NOTHING.include?(name)
      @arguments.public_send(name, ...)
    end
  end

  def initialize(native)
    @native = native
    @environment = ENV.to_h
    @encodings = [Encoding.default_external, Encoding.default_internal]
    @parts = {}
    @folders = {}
    @states = {}
    # These are set again in the child.
    @set_again = [*native.volatile, "THRUWAY_BOOT"]
  end

  # Comes back in a child only, which is a command.
  def run
    objection = catch(:objection) { boot }
    give_up(objection) if objection
    serve
  end

  private

  def boot
    features, variables, @arguments = @native.plan
    object("its features are not known") unless features
    @prefix = prefix
    look_at_options
    @surroundings = surroundings
    @start = BootState.now
    objection = @script.objection
    @native.bare(objection) if objection
    load_ahead(features, variables) unless objection
    read_specifications
    ForkSafety.disconnect
    look
    look_at_memory
    take_unflushed
    of_ruby = ->(one) { one.seed > BootState::OWN_SEED_MAX }
    @randoms = ObjectSpace.each_object(Random).select(&of_ruby)
    @native.exclude(hooks&.excluded.to_a)
    @native.listen(Dir.pwd, $LOADED_FEATURES) || object("there is no socket")
    nil
  rescue Exception => e # rubocop:disable Lint/RescueException
    "it raises #{e.class} as it boots"
  end

  def load_ahead(features, variables)
    readers = EnvironmentReaders.new(__FILE__) { @native.read_all_variables }
    readers.watching do
      BootState.keeping_titles { watching_arguments { load_features(features, variables) } }
    end
    drawn = @states.values.filter_map { |state| state[:random] }
    object("it draws more random numbers than can be drawn again") unless drawn.all?(&:last)
  end

  def object(reason) = throw(:objection, reason)

  def give_up(reason)
    @native.refuse(reason)
    exit!(1)
  end

  # How many of the command's words come before the arguments of Ruby's script.
  def prefix
    words = @native.words
    ends_alike = arguments(words.last(ARGV.size)) == ARGV
    object("its arguments reach Ruby in another form") unless ends_alike
    @program = File.binread("/proc/self/cmdline").chomp("\0").split("\0", -1)
    @program.pop(ARGV.size)
    @native.same_words(words.size - ARGV.size)
    words.size - ARGV.size
  end

  # What Ruby has done before it came here.
  def look_at_options
    options = @program.drop(1) + ENV.fetch("RUBYOPT", "").split
    has = ->(pattern) { options.any? { |word| word.match?(pattern) } }
    object("Ruby takes switches out of its script's arguments (-s)") if has[TAKES_SWITCHES]
    object("Ruby says its version (-v)") if has[SAYS_VERSION]
    object("its script is its standard input") if $0 == "-"
    @native.script($0) unless $0 == "-e"
    @script = AheadScript.new($0, ARGV.dup)
  end

  # What a boot may change that a fork must not find changed.
  def surroundings
    # Signals beyond the first 31 are libc's own.
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
      made = changes { load_feature(path, *folders) }
      path.end_with?(*OF_RAILS) ? @parts[path] = [before, last = made] : last.update(made)
    end
    add_nested
  end

  # What a part has loaded of the other ones is asked for under the same variables.
  def add_nested
    inner = $LOADED_FEATURES.select { |path| path.end_with?(*OF_RAILS) } - @parts.keys
    return if @parts.empty?

    outer, part = @parts.to_a.last
    inner.each { |path| @parts[path], @states[path] = part, @states[outer] }
    @states.compact!
  end

  # What the boot makes of the first command's arguments is right for the same ones alone. It has to
  # find the Array itself then, so it starts again.
  def watching_arguments
    return yield if @native.of_words?

    original = ARGV
    were_read = false
    exchange_arguments(Arguments.new(original) { were_read = true })
    yield
  ensure
    exchange_arguments(original) if original
    start_again if were_read && surroundings == @surroundings
  end

  def start_again = start(@environment.merge([@native.role_of_words].to_h), @native.words)

  # Starts a command in the place of this process. Of one word alone Ruby would make a shell's line.
  def start(environment, words)
    exec(environment, [words.first, words.first], *words.drop(1), unsetenv_others: true)
  end

  def exchange_arguments(arguments)
    Object.send(:remove_const, :ARGV)
    Object.const_set(:ARGV, arguments)
  end

  # The command asked for it by a name, which made RubyGems activate its gem.
  def load_feature(path, first, last)
    folders = [first, last].map { |all| all - $LOAD_PATH }
    @folders[path] = folders if folders.any?(&:any?)
    before = BootState.now
    with_folders(*folders) do
      activate(path) unless $LOAD_PATH.any? { |folder| path.start_with?("#{folder}/") }
      require(path)
    end
    state = BootState.since(before)
    @states[path] = state if state.any?
  end

  # The command itself has put them into the load path, and each child does so again.
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

  # What the boot has written and Ruby has not: each child has it in its own streams. A fork would
  # write it to the template's, which are nothing.
  def take_unflushed
    @unflushed = [STDOUT, STDERR].reject(&:closed?).map do |stream|
      count = @native.said_count
      stream.flush
      [stream, stream.external_encoding ? "" : @native.take_said(count)]
    end
  end

  # A binstub of RubyGems asks which gem has the command. Bundler then reads each gem's own
  # specification, which it has not needed before.
  def read_specifications
    return unless defined?(::Bundler) && File.file?(@program.last)

    is_binstub = File.binread(@program.last).include?("Gem.activate_bin_path")
    ::Gem.loaded_specs.each_value(&:executables) if is_binstub
  end

  # What the boot does to the environment is done to each child's, when it asks for that part.
  def changes
    before = ENV.to_h
    yield
    now = ENV.to_h
    (before.keys | now.keys).reject { |name| before[name] == now[name] }
                            .to_h { |name| [name, now[name]] }
  end

  def look
    objection = @native.objection || @native.open_files_objection
    object(objection) if objection
    changed = surroundings.find { |name, value| @surroundings[name] != value }
    object("it changes #{changed.first}") if changed
    look_at_threads
    object("Coverage is running") if coverage?
    object("$DEBUG is on") if $DEBUG
  end

  def look_at_threads
    thread = ForkSafety.end_threads(Thread.list - [Thread.main])
    object("it starts a thread (#{thread.inspect})") if thread
  end

  def look_at_memory
    megabytes = File.read("/proc/self/status")[/^VmRSS:\s*(\d+)/, 1].to_i / 1024
    allowed = Integer(ENV.fetch("THRUWAY_PRELOAD_MB", MEGABYTES_MAX))
    object("it takes #{megabytes} MB, and #{allowed} are allowed") if megabytes > allowed
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
    # Hooks of the application's own may raise in the child.
    exit!(1) unless Process.pid == template
  end

  # This process is the command.
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
    guarded.any? ? @native.guard(guarded, method(:compare)) : say_again
    hooks&.run_after_fork
  end

  # What the boot has said, behind what the command has said before it asked for the application.
  def say_again
    unflushed, @unflushed = @unflushed, nil
    return unless unflushed

    [STDOUT, STDERR].reject(&:closed?).each(&:flush)
    @native.said
    unflushed.each { |stream, bytes| stream.write(bytes) }
  end

  # As Ruby made them at its start, whatever the boot has made of the encodings.
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

  # Bundler has kept those of the template's own environment.
  def take_original_environment
    return unless defined?(::Bundler::ORIGINAL_ENV) && !::Bundler::ORIGINAL_ENV.frozen?

    @native.volatile.each do |name|
      given = @given[name]
      given ? ::Bundler::ORIGINAL_ENV[name] = given : ::Bundler::ORIGINAL_ENV.delete(name)
    end
  end

  def set(variables) = variables.each { |name, value| ENV[name] = value }

  # What Ruby has seeded itself is each command's own.
  def seed_anew
    Random.srand
    @randoms.reject(&:frozen?).each { |one| Random.instance_method(:initialize).bind_call(one) }
  end

  # As tools show it: the words that the template's Ruby was started with, and the arguments.
  def title = Process.setproctitle([*@program, *ARGV].map(&:b).join(" "))

  # A part that was booted under other variables than this command has set is of no use: the command
  # is started as always. Answers whether there are more to compare.
  def compare(path)
    compare_folders(@folders.delete(path))
    part = @parts.delete(path)
    compare_part(part) if part
    take_state(path)
    say_again
    [@parts, @folders, @states].any?(&:any?)
  end

  # What the feature did to Ruby itself.
  def take_state(path)
    state = @states.delete(path)
    return unless state

    @states.delete_if { |_, other| other.equal?(state) }
    BootState.set(state)
  end

  # From other folders the command would get another feature of that name.
  def compare_folders(folders)
    return unless folders

    first, last = folders
    now = $LOAD_PATH.grep_v(OF_GEMS)
    is_same = now.first(first.size) == first && now.last(last.size) == last
    boot_after_all("the load path is another") unless is_same
  end

  def compare_part(part)
    @parts.delete_if { |_, other| other.equal?(part) }
    before, made = part
    now = compared(ENV.to_h)
    differs = (now.keys | before.keys).find { |name| now[name] != before[name] }
    boot_after_all("variable #{differs} is another") if differs
    boot_after_all("Coverage is running") if coverage?
    compare_arguments if @native.of_words?
    set(made)
  end

  # The boot looked at what the first command had left of its arguments by then.
  def compare_arguments
    boot_after_all("its arguments are others by then") if @arguments && @arguments != ARGV
    @arguments = nil
  end

  def boot_after_all(reason)
    is_explained = ENV.fetch("THRUWAY_BOOT", "").split(",").include?("explain")
    warn "thruway: preload: booted after all, since #{reason}" if is_explained
    start(@given, @words)
  end

  def compared(variables) = variables.reject { |name, _| @set_again.include?(name) }

  # The application's own hooks, if it has any.
  def hooks = (::Thruway::Preload if defined?(::Thruway::Preload.before_fork))
end
