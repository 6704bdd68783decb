# frozen_string_literal: true

# Random edits between look-ups and during them. A seed determines a sequence: a small tree, edits
# of the tree before a program starts, and a program that looks features up. During the program, the
# program itself, a child and a stranger edit the tree. The program prints the same with and without
# a pack, as far as a mode promises it (docs/reference/verbs/run.md).
#
# - `ruby freshener.rb build ROOT SEED FIRST COUNT MODE`: makes the trees
# - `ruby freshener.rb learn …`: loads everything once
# - `ruby freshener.rb between …`: edits, before the program starts
# - `ruby freshener.rb look …`: the program, whose output is in ROOT/NUMBER.said
# - `ruby freshener.rb stranger`: edits on orders
#
# Each sequence has its own process, and its own boot and pack if FRESHENER_BOOT is set. The
# processes are forks of one process, which has loaded the extension and not started the boot.
class Freshener
  BASES = %w[a b link/in c].freeze
  NAMES = %w[f g sub/h k.x].freeze
  # All modes promise to see changes by a program or its child. Only some look for those of
  # strangers.
  ACTORS = { "validated" => %i[itself child stranger], "digest" => %i[itself child stranger],
             "portable" => %i[itself child stranger], "frozen" => %i[itself child],
             "image" => %i[itself child] }.freeze
  # A frozen pack does not see edits before the start that leave their folder unchanged.
  IN_PLACE = %i[write set_back hard rights].freeze
  EDITS = %i[write write set_back replace replace remove add add swap rename_parent retarget
             hard folder rights link mount].freeze
  # One sequence in this number ends as a program does. The others end once they have printed
  # everything.
  ENDING = 8
  MOUNT, UNMOUNT = RUBY_PLATFORM.start_with?("x86_64") ? [165, 166] : [40, 39]
  BIND, DETACH = 4096, 2

  # The files of a sequence, and their edits.
  class Tree
    attr_reader :random

    def initialize(folder, seed)
      @folder = folder
      @random = Random.new(seed)
      @focus = [pick(BASES), pick(NAMES)]
    end

    def pick(list) = list[@random.rand(list.size)]
    def number = @random.rand(1_000_000)
    def path_of(base, name) = "#{@folder}/#{base}/#{name}.rb"

    # A base and a name. Most edits and look-ups are of the same file: only then do they meet.
    def place = @random.rand(3) > 0 ? @focus : [pick(BASES), pick(NAMES)]
    def path = path_of(*place)

    # All texts have the same size, so that only times and inodes distinguish them.
    def text(mark)
      format("$said << \"%<mark>07d \#{__FILE__}\"\nK%<of>d = %<of>d unless defined?(K%<of>d)\n",
             mark: mark, of: mark % 3)
    end

    def build
      %w[a/sub b/sub c/sub one/in/sub two/in/sub].each { |name| make("#{@folder}/#{name}") }
      File.symlink("one", "#{@folder}/link")
      (BASES + ["two/in"]).each do |base|
        NAMES.each do |name|
          is_there = @random.rand(3) > 0 || [base, name] == @focus
          File.write(path_of(base, name), text(number)) if is_there
        end
      end
    end

    def make(folder)
      return if File.directory?(folder)

      make(File.dirname(folder))
      Dir.mkdir(folder)
    end

    # Chooses an edit, independently of the process that makes it.
    def choose(kinds)
      [pick(kinds), path, path, pick(BASES), number]
    end
  end

  # Makes an edit: in this process, in a child, or in a stranger.
  class Editor
    def initialize(folder)
      @folder = folder
      @tree = Tree.new(folder, 0)
    end

    def edit(kind, path, other, base, mark)
      send(kind, path, other, base, mark)
      "done"
    rescue SystemCallError => e
      e.class.name
    end

    private

    def write(path, _other, _base, mark) = File.write(path, @tree.text(mark))

    def set_back(path, _other, _base, mark)
      time = File.mtime(path)
      mark.even? ? write(path, nil, nil, mark) : replace(path, nil, nil, mark)
      File.utime(time, time, path)
      folder = File.dirname(path)
      File.utime(time, time, folder)
    end

    def replace(path, _other, _base, mark)
      File.write("#{@folder}/new", @tree.text(mark))
      File.rename("#{@folder}/new", path)
    end

    def remove(path, *) = File.unlink(path)
    def add(path, _other, _base, mark) = File.exist?(path) ? nil : write(path, nil, nil, mark)

    def swap(path, other, *)
      File.rename(path, "#{@folder}/away.rb")
      File.rename(other, path)
    end

    # Exchanges two folders with their contents.
    def rename_parent(path, _other, base, mark)
      folder = mark.even? ? File.dirname(path) : "#{@folder}/#{base}"
      File.rename(folder, "#{@folder}/moved")
      File.rename("#{@folder}/c", folder) if mark % 3 > 0
      File.rename("#{@folder}/moved", "#{@folder}/c")
    end

    def retarget(_path, _other, _base, mark)
      File.unlink("#{@folder}/link")
      File.symlink(%w[one two nowhere][mark % 3], "#{@folder}/link")
    end

    # Edits the file under another of its names.
    def hard(path, other, _base, mark)
      return write(path, nil, nil, mark) if File.exist?(other)

      File.link(path, "#{@folder}/hard")
      File.open("#{@folder}/hard", "r+") { |file| file.write(@tree.text(mark)) }
      File.unlink("#{@folder}/hard")
    end

    # A file becomes a folder, and back.
    def folder(path, _other, _base, mark)
      if File.directory?(path)
        Dir.rmdir(path)
        write(path, nil, nil, mark)
      else
        File.unlink(path) if File.exist?(path)
        Dir.mkdir(path)
      end
    end

    def rights(path, _other, _base, mark) = File.chmod([0o000, 0o600, 0o644][mark % 3], path)

    def link(path, other, *)
      File.unlink(path) if File.exist?(path)
      File.symlink(other, path)
    end

    # Mounts another folder over this one, where permitted. The next edit unmounts it.
    def mount(_path, _other, base, mark)
      return unless ENV["FRESHENER_MOUNTS"]

      target, source = "#{@folder}/#{base}", "#{@folder}/two/in"
      mark.even? ? syscall(MOUNT, source, target, +"none", BIND,
                           0) : syscall(UNMOUNT, target, DETACH)
    end
  end

  def initialize(root, seed, first, count, mode)
    @root = root
    @numbers = (Integer(first)...(Integer(first) + Integer(count)))
    @seed = Integer(seed)
    @mode = mode
  end

  def build
    each_tree { |tree, _| tree.build }
  end

  def learn
    in_each_tree do |tree, *|
      NAMES.each { |name| attempt { require(name) } }
      BASES.each { |base| NAMES.each { |name| attempt { load(tree.path_of(base, name)) } } }
    end
  end

  def attempt
    yield
  rescue LoadError
    nil
  end

  def between
    kinds = @mode == "frozen" ? EDITS - IN_PLACE : EDITS
    return if @mode == "image"

    each_tree do |tree, folder|
      tree.random.rand(3).times { Editor.new(folder).edit(*tree.choose(kinds)) }
    end
  end

  def look
    @stranger = start_stranger if ACTORS.fetch(@mode).include?(:stranger)
    in_each_tree do |tree, folder, number|
      follow(tree, folder)
      File.write("#{@root}/#{number}.said", $said.join("\n").gsub(folder, "/R"))
      exit!(true) unless (number % ENDING).zero?
    end
  end

  def self.serve_as_stranger
    $stdout.sync = true
    while (line = $stdin.gets)
      folder, *edit = Marshal.load([line.chomp].pack("H*"))
      puts Editor.new(folder).edit(*edit)
    end
  end

  private

  def each_tree
    @numbers.each do |number|
      folder = "#{@root}/#{number}"
      yield Tree.new(folder, @seed + number), folder, number
    end
  end

  def in_each_tree
    require "thruway/thruway" if ENV["FRESHENER_BOOT"]
    each_tree do |tree, folder, number|
      child = fork do
        boot("#{@root}/#{number}.pack") if ENV["FRESHENER_BOOT"]
        $said = []
        $LOAD_PATH.unshift(*BASES.map { |base| "#{folder}/#{base}" })
        yield tree, folder, number
      end
      Process.wait(child)
      abort("sequence #{number} failed") unless $?.success?
    end
  end

  def boot(pack)
    ENV["THRUWAY_PACK"], ENV["THRUWAY_BOOT"] = pack, ENV.fetch("FRESHENER_BOOT")
    require "thruway/boot"
  end

  def start_stranger
    IO.popen([File.readlink("/proc/self/exe"), "--disable=gems", __FILE__, "stranger"], "r+")
  end

  def follow(tree, folder)
    (6 + tree.random.rand(10)).times do
      $said << (tree.random.rand(2).zero? ? edit(tree, folder) : look_up(tree, folder))
    end
    $said.concat($LOADED_FEATURES.grep(/#{Regexp.escape(folder)}/))
  end

  def edit(tree, folder)
    actor, edit = tree.pick(ACTORS.fetch(@mode)), tree.choose(EDITS)
    # Ruby has no method for mounts.
    actor = :child if edit.first == :mount && actor == :itself
    ["#{actor} #{edit.first}", send(actor, folder, edit)].join(": ")
  end

  def itself(folder, edit) = Editor.new(folder).edit(*edit)

  def child(folder, edit)
    Process.wait(fork { exit!(itself(folder, edit) == "done" ? 0 : 1) })
    $?.exitstatus
  end

  def stranger(folder, edit)
    @stranger.puts(Marshal.dump([folder, *edit]).unpack1("H*"))
    @stranger.gets.chomp
  end

  def look_up(tree, folder)
    base, name = tree.place
    way = tree.pick(WAYS)
    path = tree.path_of(base, name)
    ["#{way} #{name}", send(way, name, path, folder, tree)].join(": ")
  rescue LoadError, StandardError, SyntaxError => e
    "#{way} #{name}: #{e.class} #{e.message}"
  end

  WAYS = %i[by_name by_path load_path load_path load_wrapped load_relative load_along
            again_relative again_by_constant again_by_other_order again again].freeze

  def by_name(name, *) = require("#{name}.rb")
  def by_path(_name, path, *) = require(path)
  def load_path(_name, path, *) = load(path)
  def load_wrapped(_name, path, *) = load(path, true)
  def load_along(name, *) = load("#{name}.rb")

  def load_relative(_name, path, folder, _tree)
    Dir.chdir(folder) { load("./#{path.delete_prefix("#{folder}/")}") }
  end

  # Looks the feature up again, as a program does that reloads.
  def again(name, _path, folder, _tree)
    $LOADED_FEATURES.reject! { |feature| feature.start_with?(folder) }
    require(name)
  end

  def again_relative(_name, path, folder, _tree)
    $LOADED_FEATURES.reject! { |feature| feature.start_with?(folder) }
    require_relative(path.delete_suffix(".rb"))
  end

  def again_by_constant(name, _path, folder, tree)
    $LOADED_FEATURES.reject! { |feature| feature.start_with?(folder) }
    constant = "K#{tree.random.rand(3)}"
    Object.send(:remove_const, constant) if Object.const_defined?(constant)
    Object.autoload(constant, name)
    Object.const_get(constant)
  end

  def again_by_other_order(name, _path, folder, tree)
    $LOAD_PATH.unshift($LOAD_PATH.delete("#{folder}/#{tree.pick(BASES)}"))
    again(name, nil, folder, tree)
  end
end

if $PROGRAM_NAME == __FILE__
  command, *arguments = ARGV
  command == "stranger" ? Freshener.serve_as_stranger : Freshener.new(*arguments).send(command)
end
