# frozen_string_literal: true

# Reports when a boot reads its whole environment: Ruby does so without a system call or a call of
# the C library that could be interposed. `preload_template.rb` loads this file into its own
# anonymous module.
class EnvironmentWatcher
  NAMES = %i[assoc clone delete_if dup each each_key each_pair each_value except filter filter!
             has_value? inspect invert keep_if key keys rassoc reject reject! select select! to_a
             to_h to_hash value? values].freeze
  # Bundler copies the environment for programs that it starts. The copy is corrected in each child.
  KEEPER = %r{/bundler/environment_preserver\.rb\z}

  # Calls from the file `own` are not reported.
  def initialize(own, &report)
    @own, @report = own, report
    @originals = (NAMES & ENV.singleton_methods).to_h { |name| [name, ENV.method(name).unbind] }
  end

  def watching
    quietly { @originals.each { |name, original| watch(name, original) } }
    yield
  ensure
    quietly { @originals.each { |name, original| define(name, original) } }
  end

  private

  def watch(name, original)
    own, report = @own, @report
    ENV.define_singleton_method(name) do |*arguments, **options, &block|
      caller = caller_locations(1, 1).first&.path.to_s
      report.call unless caller == own || caller.match?(KEEPER)
      original.bind_call(self, *arguments, **options, &block)
    end
  end

  def define(name, original)
    ENV.singleton_class.send(:define_method, name, original)
  end

  def quietly
    level, $VERBOSE = $VERBOSE, nil
    yield
  ensure
    $VERBOSE = level
  end
end
